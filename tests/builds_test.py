"""Results belong to the build that made them: another one does not mix its own with them, and --fresh begins anew."""

import json
import re
import shutil
import subprocess

import pytest
from program import PATIENCE, PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

MODEL = ["--layers", 1, "--width", 32, "--heads", 2, "--context", 16, "--batch", 2, "--steps", 3, "--device", "cpu"]


def call(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, check=False)


def succeed(program, *arguments):
    done = call(program, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "lock"}


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """A text, a model, and the program as another build of it would be: the same but for its number."""
    folder = tmp_path_factory.mktemp("builds")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    succeed(PROGRAM, "train", "--text", folder / "text.txt", "--out", folder / "model", *MODEL)
    build = json.loads((folder / "model" / "run.json").read_text())["build"]
    assert re.fullmatch("[0-9a-f]{12}", build)
    code = PROGRAM.read_bytes()
    assert code.count(build.encode()) == 1
    (folder / "other").write_bytes(code.replace(build.encode(), b"0123456789ab"))
    (folder / "other").chmod(0o755)
    return folder


def compare(folder, out):
    return ["compare", "--text", folder / "text.txt", "--out", out, "--methods", "softmax,ssa", "--seeds", 1, "--warmup", 1,
            "--learning-rate", 0.003, *MODEL]


def study(_, out):
    return ["study", "denoise", "--out", out, "--steps", 2, "--batch", 2, "--methods", "softmax", "--seeds", 1, "--test-noise", 4]


def calibrate(folder, out):
    return ["calibrate", folder / "model", "--text", folder / "text.txt", "--out", out, "--tokens", 64, "--step-tokens", 32,
            "--eval-tokens", 64, "--eval-lengths", 16, "--device", "cpu"]


@pytest.mark.parametrize("verb, kept, reused", [
    (compare, "jobs/ssa-seed0.json", "2 of 2 models were finished before; --fresh trains them again"),
    (study, "jobs/softmax-seed0.json", "1 of 1 models were finished before; --fresh trains them again"),
    (calibrate, "measures/before.json", "measure before: finished before; --fresh measures it again"),
])
def test_builds_do_not_mix_their_results(given, tmp_path, verb, kept, reused):
    out = tmp_path / "run"
    succeed(PROGRAM, *verb(given, out))
    (out / "notes.txt").write_text("mine")
    assert reused in succeed(PROGRAM, *verb(given, out)).stderr
    before = files(out)

    refused = call(given / "other", *verb(given, out))
    assert refused.returncode == 2
    assert "another build of tempera" in refused.stderr and "0123456789ab" in refused.stderr and "--fresh" in refused.stderr
    assert files(out) == before

    fresh = succeed(given / "other", *verb(given, out), "--fresh")
    assert f"'{out}/before-1' now" in fresh.stderr and "finished before" not in fresh.stderr
    after = files(out)
    assert json.loads((out / "run.json").read_text())["build"] == "0123456789ab"
    for name, content in before.items():
        if str(name) != "notes.txt":
            assert after["before-1" / name] == content
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / kept).exists()
    # What was asked for once is not asked for again by the command that goes on.
    assert "finished before" in succeed(given / "other", *verb(given, out)).stderr
    assert "fresh" not in json.dumps(json.loads((out / "run.json").read_text())["settings"])


def test_a_failure_leaves_the_earlier_results_in_place(given, tmp_path):
    out = tmp_path / "run"
    text = tmp_path / "text.txt"
    shutil.copy(given / "text.txt", text)
    arguments = [text if word == given / "text.txt" else word for word in compare(given, out)]
    succeed(PROGRAM, *arguments)
    before = files(out)
    text.unlink()
    failed = call(PROGRAM, *arguments, "--fresh")
    assert failed.returncode in (1, 2) and "text.txt" in failed.stderr
    assert files(out) == before


def test_a_model_of_another_build_is_refused(given, tmp_path):
    out = tmp_path / "run"
    succeed(PROGRAM, *study(given, out))
    (file,) = (out / "jobs").iterdir()
    file.write_text(json.dumps({**json.loads(file.read_text()), "build": "0123456789ab"}))
    refused = call(PROGRAM, *study(given, out))
    assert refused.returncode == 1
    assert f"{file} was made by another build of tempera (0123456789ab" in refused.stderr


def test_training_goes_on_with_a_note(given, tmp_path):
    out = tmp_path / "run"
    arguments = ["train", "--text", given / "text.txt", "--out", out, *MODEL]
    succeed(PROGRAM, *arguments)
    assert "another build" not in succeed(PROGRAM, *arguments).stderr
    assert f"note: the run in '{out}' was begun by another build of tempera" in succeed(given / "other", *arguments).stderr


def build_id(folder, change=None):
    """Of a copy of the sources' list, by the script that makes it."""
    sources = ["src/tempera/temperature/ssa.cc", "src/tempera/base/version.h"]
    for name in sources:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text()
        (folder / name).write_text(text + change if change and name == sources[0] else text)
    (folder / "list.txt").write_text("\n".join([str(folder), "torch 1", *sources]) + "\n")
    subprocess.run(["cmake", "-D", f"LIST={folder}/list.txt", "-D", f"OUT={folder}/id.cc", "-P",
                    ROOT / "cmake" / "tempera_build_id.cmake"], check=True)
    return re.search('"([0-9a-f]{12})"', (folder / "id.cc").read_text())[1]


def test_the_number_is_that_of_the_sources(tmp_path):
    first = build_id(tmp_path / "here")
    assert build_id(tmp_path / "there") == first
    assert build_id(tmp_path / "here", "// more\n") != first
    assert build_id(tmp_path / "here") == first
