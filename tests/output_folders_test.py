"""What is a user's stays a user's: every verb that writes, with output places of every kind and failures at every stage."""

import contextlib
import os
import random
import re
import shlex
import signal
import subprocess
import time

import pytest

from program import LONG, PATIENCE, PROGRAM, run, wait_until

TEXT = "".join(f"{i * i % 97} is the rest of {i} squared, and {i} and {i + 1} make {2 * i + 1}.\n" for i in range(200))
SHAPE = ["--layers", 1, "--width", 16, "--heads", 2, "--context", 16]
STEPS = ["--steps", 2, "--batch", 2, "--warmup", 1, "--eval-rows", 2, "--device", "cpu"]
PHONEBOOK = ["--steps", 2, "--batch", 2, "--warmup", 1, "--methods", "softmax", "--seeds", 1, "--device", "cpu"]
TOY = ["--steps", 2, "--methods", "softmax", "--seeds", 1]
CALIBRATE = ["--threads", 1, "--passkey-cases", 0, "--eval-tokens", 200, "--step-tokens", 32, "--tokens", 64, "--device", "cpu",
             "--learn", "head"]


class Case:
    """A verb that writes: its words with {text}, {model} and {run} to fill in."""

    def __init__(self, name, words, kind="run", promise=None):
        self.name, self.kind = name, kind
        self.words = [str(word) for word in words]
        self.promise = promise or []  # names that are in the place afterwards

    def arguments(self, inputs, out):
        words = [word.format(**{key: str(path) for key, path in inputs.items()}) for word in self.words]
        return [*words, "--out", str(out)]


CASES = [
    Case("train", ["train", "--text", "{text}", *SHAPE, *STEPS], promise=["run.toml", "last", "data", "report.html"]),
    Case("finetune", ["finetune", "{model}", "--text", "{text}", *STEPS], promise=["run.toml", "last", "finetune.svg", "report.html"]),
    Case("calibrate", ["calibrate", "{model}", "--text", "{text}", *CALIBRATE], promise=["report.html", "calibration.json"]),
    Case("compare", ["compare", "--text", "{text}", *SHAPE, *STEPS[:-2], "--device", "cpu", "--methods", "softmax", "--seeds", 1],
         promise=["results.json", "report.html"]),
    Case("denoise", ["study", "denoise", *TOY], promise=["report.html"]),
    Case("graph", ["study", "graph", *TOY], promise=["report.html"]),
    Case("ablation", ["study", "ablation", *PHONEBOOK], promise=["report.html"]),
    Case("dilution", ["study", "dilution", *PHONEBOOK], promise=["report.html"]),
    Case("dilution of a model", ["study", "dilution", "{model}", "--text", "{text}"], "folder", ["report.html"]),
    Case("dilution of a run", ["study", "dilution", "--run", "{comparison}"], "folder", ["report.html"]),
    Case("eval", ["eval", "{model}", "--text", "{text}"], "folder", ["eval.json", "eval.svg", "eval.png", "report.html"]),
    Case("export", ["export", "{model}"], "folder", ["config.json", "model.safetensors"]),
    Case("gguf", ["export", "{model}", "--as", "gguf"], "file"),
    Case("data", ["data", "{text}"], "folder", ["shard-00000.tokens"]),
    Case("data with a tokenizer", ["data", "{text}", "--train-tokenizer", 260], "folder", ["tokenizer.json"]),
]
# One of every kind of writer; the others share their code.
QUICK = ("train", "calibrate", "compare", "eval", "export", "gguf", "data")
CHOSEN = [case for case in CASES if LONG or case.name in QUICK]
RUNS = [case for case in CHOSEN if case.kind == "run"]
by_name = pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)


def contents(folder):
    """Every name below the folder with its bytes, the target of a link, or nothing."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        if path.name == "lock" and re.fullmatch(rb"\d+\n", found[name] or b""):
            found[name] = "the number of the last process"
    return found


def start(case, inputs, out, **options):
    return subprocess.Popen([PROGRAM, *case.arguments(inputs, out)],
                            **{"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, **options})


def works(case, inputs, out):
    done = run(*case.arguments(inputs, out))
    assert done.returncode == 0, (case.name, done.stderr)
    for name in case.promise:
        assert (out / name).exists(), (case.name, name, sorted(os.listdir(out)))
    return done


def refused(case, inputs, out, around, words):
    """Nothing changes, and the message names what is in the way."""
    before = contents(around)
    begin = time.monotonic()
    done = run(*case.arguments(inputs, out))
    assert done.returncode in (1, 2), (case.name, str(out), done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr, (case.name, done.stderr)
    assert contents(around) == before, (case.name, str(out))
    return time.monotonic() - begin


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "text.txt").write_text(TEXT)
    found = {"text": folder / "text.txt", "model": folder / "model", "comparison": folder / "comparison"}
    for done in (run("train", "--text", found["text"], *SHAPE, "--model.context", 64, *STEPS, "--out", found["model"]),
                 run("compare", *PHONEBOOK, "--out", found["comparison"])):
        assert done.returncode == 0, done.stderr
    return found


@pytest.fixture(autouse=True)
def the_inputs_stay(inputs):
    before = {name: contents(path) if path.is_dir() else path.read_bytes() for name, path in inputs.items()}
    yield
    for name, path in inputs.items():
        assert (contents(path) if path.is_dir() else path.read_bytes()) == before[name], name


def neighbours(folder):
    """What a user may have beside an output place."""
    for name in ("out.part", ".out.part", "out.bak", ".out.1234.part", "lock"):
        (folder / name).write_text("mine")
    (folder / "out.part.d").mkdir()
    (folder / "out.part.d" / "x").write_text("mine")


@by_name
def test_a_place_that_is_taken_is_refused_before_the_work(case, inputs, tmp_path):
    neighbours(tmp_path)
    if case.kind == "file":
        (tmp_path / "model.gguf").write_text("mine")
        refused(case, inputs, tmp_path / "model.gguf", tmp_path, ["is there already"])
        refused(case, inputs, f"{tmp_path}/new.gguf/", tmp_path, ["the name of a folder"])
        refused(case, inputs, tmp_path, tmp_path, ["is there already"])
        return
    names = ["thesis.tex", "run.toml", "run.json", "lock", "data/x", ".data.part"]
    for name in names if LONG else random.sample(names, 2):
        place = tmp_path / f"place-{name.replace('/', '-')}"
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("steps = 3\n")
        refused(case, inputs, place, tmp_path, [name.split("/")[0]])
    other = inputs["comparison" if case.name == "train" else "model"]
    refused(case, inputs, other, other, ["holds"])
    (tmp_path / "file").write_text("mine")
    refused(case, inputs, tmp_path / "file", tmp_path, ["file"])
    if LONG:
        refused(case, inputs, tmp_path / "file" / "below", tmp_path, ["not a folder"])
        (tmp_path / "dangling").symlink_to("nowhere")
        refused(case, inputs, tmp_path / "dangling", tmp_path, ["dangling"])


@by_name
def test_a_place_that_is_free_is_taken_as_it_is(case, inputs, tmp_path):
    neighbours(tmp_path)
    before = contents(tmp_path)
    if case.kind == "file":
        places = [tmp_path / "above" / "the model.gguf"]
        works(case, inputs, places[0])
        assert places[0].is_file()
    else:
        (tmp_path / "real place").mkdir()
        (tmp_path / "link").symlink_to("real place")
        before = contents(tmp_path)
        places = [tmp_path / "link", *([tmp_path / "out", tmp_path / "above" / "out"] if LONG else [])]
        for place in places:
            done = run(*case.arguments(inputs, f"{place}/"))
            assert done.returncode == 0, done.stderr
            for name in case.promise:
                assert (place / name).exists(), (name, sorted(os.listdir(place)))
    after = contents(tmp_path)
    for name, value in before.items():
        assert after[name] == value, name
    assert not [name for name in after if ".tempera-" in name]


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
def test_a_finished_run_is_found_again(case, inputs, tmp_path):
    works(case, inputs, tmp_path / "out")
    (tmp_path / "out" / "notes").write_text("mine")
    if (tmp_path / "out" / "run.toml").exists():
        (tmp_path / "out" / "run.toml").unlink()  # as after a kill between the two files
    works(case, inputs, tmp_path / "out")
    assert (tmp_path / "out" / "notes").read_text() == "mine"
    if case.name in ("train", "finetune", "calibrate"):
        done = run(case.name, "--config", tmp_path / "out" / "run.toml")
        assert done.returncode == 0, done.stderr


def test_a_config_of_ones_own_in_the_output_folder(inputs, tmp_path):
    place = tmp_path / "exp"
    place.mkdir()
    (place / "run.toml").write_text("# mine\nsteps = 2\n")
    for text in (inputs["text"], tmp_path / "nope.txt"):
        done = run("train", "--config", place / "run.toml", "--text", text, *SHAPE, "--out", place)
        assert done.returncode == 1 and "holds 'run.toml'" in done.stderr, done.stderr
        assert contents(place) == {"run.toml": b"# mine\nsteps = 2\n"}


BAD_TEXTS = {
    "missing": None,
    "empty": b"",
    "binary": bytes(range(256)) * 20,
    "torn UTF-8": b"caf\xc3",
    "one byte": b"x",
}
READERS = [case for case in CHOSEN if "{text}" in case.words]


@pytest.mark.parametrize("case", READERS, ids=lambda case: case.name)
def test_bad_text_leaves_nothing(case, inputs, tmp_path):
    for name in BAD_TEXTS if LONG else ("missing", "empty", "binary"):
        bad = tmp_path / f"{name}.txt"
        if BAD_TEXTS[name] is not None:
            bad.write_bytes(BAD_TEXTS[name])
        before = contents(tmp_path)
        done = run(*case.arguments({**inputs, "text": bad}, tmp_path / "out"))
        if done.returncode == 0:  # bytes are a text for the tokenizer of bytes, and one is one for `data`
            assert name in ("binary", "torn UTF-8", "one byte"), name
            continue
        assert done.returncode in (1, 2) and done.stderr.startswith("tempera: "), (name, done.stderr)
        assert str(bad) in done.stderr or "text" in done.stderr, (name, done.stderr)
        assert contents(tmp_path) == before, name
    (tmp_path / "folder").mkdir()
    before = contents(tmp_path)
    done = run(*case.arguments({**inputs, "text": tmp_path / "folder"}, tmp_path / "out2"))
    assert done.returncode in (1, 2) and "folder" in done.stderr, done.stderr
    assert contents(tmp_path) == before


def promised(case, inputs, out, errors):
    """Does what was printed."""
    found = re.search(r"To go on:\n\s+(tempera .*)", errors)
    if found:
        words = shlex.split(found[1])
        done = run(*words[1:])
        assert done.returncode == 0, (words, done.stderr)
        for name in case.promise:
            assert (out / name).exists(), name
    else:
        works(case, inputs, out)


def longer(case):
    """The same with so much to do that it can be interrupted."""
    more = {"train": ["--steps", 300, "--save-every", 7], "finetune": ["--steps", 200, "--save-every", 7],
            "calibrate": ["--tokens", 3200, "--eval-tokens", 2000], "compare": ["--steps", 300],
            "denoise": ["--steps", 50], "graph": ["--steps", 50], "ablation": ["--steps", 8], "dilution": ["--steps", 8]}
    words = list(case.words)
    for option, value in zip(more.get(case.name, [])[::2], more.get(case.name, [])[1::2]):
        if option in words:
            words[words.index(option) + 1] = str(value)
        else:
            words += [option, str(value)]
    return Case(case.name, words, case.kind, case.promise)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
@by_name
def test_a_signal_at_any_moment(case, number, inputs, tmp_path):
    neighbours(tmp_path)
    before = contents(tmp_path)
    case = longer(case)
    for attempt in range(12 if LONG else 1):
        out = tmp_path / f"new{attempt}" / ("m.gguf" if case.kind == "file" else "out")
        process = start(case, inputs, out)
        time.sleep(random.uniform(0.1, 1.0))
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode in (0, -number, 128 + number), errors
        if "nothing was written" in errors:
            assert not out.exists() and not out.parent.exists(), errors
        if process.returncode == 0:
            continue
        if case.kind != "run":
            assert not out.exists(), "complete or not at all"
        promised(case, inputs, out, errors)
    after = contents(tmp_path)
    for name, value in before.items():
        assert after[name] == value, name


def test_a_calibration_that_is_interrupted_at_every_stage(inputs, tmp_path):
    """What it says is saved is saved, also before anything is learned."""
    case = longer(next(case for case in CASES if case.name == "calibrate"))
    stages = {"before": lambda out: (out / "data").exists(),
              "learning": lambda out: (out / "log.jsonl").exists(),
              "after": lambda out: (out / "last").exists()}
    for stage, reached in stages.items():
        out = tmp_path / stage
        process = start(case, inputs, out)
        wait_until(lambda: reached(out), process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            continue
        assert process.returncode == 130, errors
        assert "To go on:" in errors, errors
        promised(case, inputs, out, errors)


@contextlib.contextmanager
def mounted(folder, *options):
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", folder],
                                           capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def remount(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


@by_name
def test_a_full_disk_and_one_that_cannot_be_written(case, inputs, tmp_path):
    name = "m.gguf" if case.kind == "file" else "out"
    with mounted(tmp_path / "disk", "size=64k", "nr_inodes=100") as disk:
        (disk / "mine").write_text("mine")
        filler = disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        before = contents(disk)
        done = run(*case.arguments(inputs, disk / name))
        assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
        assert contents(disk) == before
        remount(disk, "ro")
        assert refused(case, inputs, disk / name, disk, ["Read-only"]) < 60
        remount(disk, "rw,size=64m,nr_inodes=10000")
        promised(case, inputs, disk / name, done.stderr)
        assert (disk / "mine").read_text() == "mine"


@by_name
def test_a_folder_without_permission(case, inputs, tmp_path):
    """Without the rights of root where the tests run as root."""
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "mine").write_text("mine")
    closed.chmod(0o555)
    command = [PROGRAM, *case.arguments(inputs, closed / "out")]
    if os.geteuid() == 0:
        rights = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command]
        if subprocess.run([*command[:3], "test", "-w", closed], capture_output=True, check=False).returncode != 1:
            pytest.skip("root cannot give up its rights here")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 1 and "Permission denied" in done.stderr and "--out" in done.stderr, done.stderr
    assert [path.name for path in closed.iterdir()] == ["mine"]
