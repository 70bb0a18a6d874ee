"""`tempera train` from outside: results, run folders, bad input."""

import json
import re
import resource
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, few

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

SMALL = ("--layers 1 --width 32 --heads 2 --context 16 --batch 2 --steps 8 --warmup 2 --eval-every 4 --eval-rows 4 "
         "--log-every 1 --device cpu --threads 1").split()


def train(*arguments, **options):
    return subprocess.run(
        [PROGRAM, "train", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    return path


def test_text_in_one_command(tmp_path, text):
    out = tmp_path / "run"
    result = train("--text", text, "--out", out, "--temperature", "ssa", *SMALL, "--json")
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["steps"] == 8 and summary["tokens"] == 8 * 2 * 16
    assert summary["temperature"] == "ssa" and summary["temperature_parameters"] > 0
    assert summary["validation"]["perplexity"] > 1
    assert list((out / "data").glob("*.tokens"))
    config = json.loads((out / "last" / "config.json").read_text())
    assert config["model_type"] == "tempera"
    assert config["tempera"]["tokenizer"] == "bytes"
    assert config["tempera"]["config"]["temperature"]["method"] == "ssa"
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    steps = [line for line in log if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 9))
    assert {"learning_rate", "gradient_norm", "tokens", "tokens_per_second"} <= set(steps[0])
    assert [line["step"] for line in log if "validation_loss" in line] == [4, 8]

    # Again: the run is complete, and says so by doing nothing. The text itself is no longer needed.
    text.unlink()
    again = train("--text", text, "--out", out, "--temperature", "ssa", *SMALL, "--json")
    assert again.returncode == 0, again.stderr
    assert "continuing the run in" in again.stderr
    assert json.loads(again.stdout)["resumed_from"] == 8
    assert json.loads(again.stdout)["validation"] == summary["validation"]


def test_a_run_says_how_long_it_will_take(tmp_path, text):
    words = ("train", "--text", text, "--out", tmp_path / "run", *SMALL, "--steps", 2000, "--width", 192, "--context", 128, "--batch", 4)
    process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        said = next((line for line in process.stderr if line.startswith("about ")), "")
    finally:
        process.kill()
        process.wait()
    assert re.fullmatch(r"about [\d.]+ (s|min): 2,000 steps of 512 tokens at [\d.]+k? tokens/s\n", said), said


def test_the_standard_library_is_found_before_torch():
    """Some builds of libtorch export std::filesystem of another compiler, which crashes where a checkpoint is removed."""
    listed = subprocess.run(["readelf", "-d", PROGRAM], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(\S+)\]", listed)
    first = {name.split(".so")[0]: place for place, name in reversed(list(enumerate(needed)))}
    assert first["libstdc++"] < first["libtorch"]


def test_equal_seeds_give_equal_bits(tmp_path, text):
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        result = train("--text", text, "--out", tmp_path / name, "--seed", seed, *SMALL)
        assert result.returncode == 0, result.stderr
        assert "parameters" in result.stdout and "validation" in result.stdout
        weights.append((tmp_path / name / "last" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("task", ["phonebook", "recall", "passkey", "copy"] if LONG else ["phonebook", "copy"])
def test_built_in_tasks(tmp_path, task):
    result = train("--task", task, "--out", tmp_path / "run", "--steps", 3, "--batch", 4, "--eval-rows", 4,
                   "--temperature", "focal", "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["steps"] == 3


@pytest.mark.parametrize("options", few(5, [
    ["--optimizer", "muon"], ["--optimizer", "sgd"], ["--schedule", "wsd"], ["--dtype", "bf16"], ["--recompute"],
    ["--micro-batch", "1"], ["--label-smoothing", "0.1"], ["--model.dropout-attention", "0.1"],
    ["--stages", "8:128,16:128:50000", "--steps", "0"], ["--tokens", "100", "--steps", "0"],
]))
def test_options_of_training(tmp_path, text, options):
    result = train("--text", text, "--out", tmp_path / "run", *SMALL, *options, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["loss"] < 7


def test_another_configuration_in_the_folder_is_refused(tmp_path, text):
    out = tmp_path / "run"
    assert train("--text", text, "--out", out, *SMALL).returncode == 0
    before = (out / "last" / "model.safetensors").read_bytes()
    result = train("--text", text, "--out", out, *SMALL, "--width", 64, "--learning-rate", 0.5)
    assert result.returncode == 2
    assert "model.width: given 64, in the run 32" in result.stderr
    assert "learning-rate: given 0.5, in the run 0.003" in result.stderr
    assert "layers" not in result.stderr
    assert (out / "last" / "model.safetensors").read_bytes() == before
    # How often to log or save is no part of what a run is.
    assert train("--text", text, "--out", out, *SMALL, "--save-every", 3).returncode == 0
    result = train("--text", text, "--out", out, *SMALL, "--resume=false")
    assert result.returncode == 2 and "holds a run" in result.stderr


def test_numbers_that_are_not_finite_end_the_run(tmp_path, text):
    out = tmp_path / "run"
    result = train("--text", text, "--out", out, *SMALL, "--steps", 300, "--warmup", 0, "--optimizer", "sgd",
                   "--learning-rate", 100, "--momentum", 0.99, "--clip", 0, "--save-every", 1)
    assert result.returncode == 1
    found = re.search(r"step (\d+): the loss is NaN .*layer 0", result.stderr)
    assert found, result.stderr
    last = f"step-{int(found[1]) - 1:08d}"
    assert f"the last good checkpoint is '{out}/checkpoints/{last}'" in result.stderr
    assert (out / "last").readlink().name == last


def bad(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def test_bad_data_is_refused_before_training(tmp_path):
    cases = [
        (bad(tmp_path, "empty.txt", b""), "empty"),
        (bad(tmp_path, "small.txt", b"too short"), "too small"),
        (bad(tmp_path, "binary.txt", bytes(range(256)) * 40), "text"),
        (tmp_path / "missing.txt", "missing.txt"),
        (tmp_path / "no-folder" / "text.txt", "no-folder"),
        (bad(tmp_path, "torn.tokens", b"TEMPTOK\n" + bytes(50)), "torn.tokens"),
    ]
    for path, words in cases:
        out = tmp_path / "run"
        result = train("--text", path, "--out", out, *SMALL)
        assert result.returncode == 1, (path, result.stderr)
        assert words in result.stderr, (path, result.stderr)
        assert not out.exists(), path


@pytest.mark.parametrize("options, words", few(5, [
    (["--steps", "-1"], "--steps"),
    (["--learning-rate", "0"], "--learning-rate"),
    (["--learning-rate", "nan"], "--learning-rate"),
    (["--batch", "0"], "--batch"),
    (["--micro-batch", "3"], "a step has only 2"),
    (["--heads", "5"], "does not divide"),
    (["--width", "960000", "--heads", "7500"], "this machine has"),
    (["--temperature", "sssa"], "did you mean 'ssa'"),
    (["--temperature.t", "0.5"], "only with --temperature focal"),
    (["--stages", "16"], "LENGTH:TOKENS"),
    (["--lerning-rate", "1"], "did you mean"),
    (["--task", "copy"], "both --text and --task"),
]))
def test_bad_options_are_refused(tmp_path, text, options, words):
    out = tmp_path / "run"
    result = train("--text", text, "--out", out, *SMALL, *options)
    assert result.returncode == 2, result.stderr
    assert words in result.stderr
    assert not out.exists()


@pytest.mark.parametrize("options, words", [
    (["--text", "{text}", "--model.vocabulary", "100"], "vocabulary mismatch"),
    (["--task", "copy", "--model.position", "learned", "--context", "8"], "takes at most 8"),
    (["--task", "copy", "--model.outputs", "2"], "classes"),
])
def test_data_and_model_must_fit(tmp_path, text, options, words):
    out = tmp_path / "run"
    result = train("--out", out, *SMALL, *(option.format(text=text) for option in options))
    assert result.returncode == 1, result.stderr
    assert words in result.stderr
    assert not out.exists()


def test_no_data_and_both(tmp_path):
    result = train("--out", tmp_path / "run")
    assert result.returncode == 2 and "--text" in result.stderr and "--task" in result.stderr


def test_foreign_and_unwritable_folders(tmp_path, text):
    thesis = tmp_path / "home" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("do not touch")
    result = train("--text", text, "--out", thesis.parent, *SMALL)
    assert result.returncode == 1 and "thesis.tex" in result.stderr
    assert [path.name for path in thesis.parent.iterdir()] == ["thesis.tex"]
    for out in (thesis, thesis / "run", "/proc/run"):
        result = train("--text", text, "--out", out, *SMALL)
        assert result.returncode == 1 and "--out" in result.stderr, result.stderr
    assert thesis.read_text() == "do not touch"


def test_no_space_for_the_data(tmp_path, text):
    out = tmp_path / "run"
    limit = 64
    result = train("--text", text, "--out", out, *SMALL,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert result.returncode == 1
    assert "File too large" in result.stderr
    assert not out.exists()


def test_out_of_memory_says_what_to_lower(tmp_path, text):
    limit = 5 << 30
    result = train("--text", text, "--out", tmp_path / "run", *SMALL, "--batch", 100000, "--context", 256, "--width", 256,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert result.returncode == 1
    assert re.fullmatch(r"tempera: out of memory: you tried to allocate \d+ bytes, .*--micro-batch or --batch.*--recompute\n",
                        result.stderr.splitlines(keepends=True)[-1]), result.stderr
    assert "frame #" not in result.stderr
