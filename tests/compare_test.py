"""`tempera compare` from outside: results, resuming, refusals."""

import json
import signal
import subprocess
import time

import pytest
from program import PROGRAM, few

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is not built")

TINY = ["--steps", "3", "--batch", "2", "--methods", "softmax,focal:t=0.2", "--seeds", "2", "--task.test-max", "64"]


def tempera(*arguments, **more):
    return subprocess.run([PROGRAM, "compare", *map(str, arguments)], capture_output=True, text=True, timeout=120, **more)


def test_results_have_every_method_seed_and_size(tmp_path):
    out = tmp_path / "run"
    done = tempera(*TINY, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert list(results) == ["softmax", "focal:t=0.2"]
    for method in results.values():
        for size in method["accuracy"].values():
            assert len(size["seeds"]) == 2
            assert min(size["seeds"]) <= size["mean"] <= max(size["seeds"])
            assert 0 <= size["mean"] <= 100
    assert json.loads((out / "results.json").read_text())["results"] == results
    # The scale of the queries is what the option says: 1 / t.
    assert all(abs(s["mean"] - 5) < 1e-5 for s in results["focal:t=0.2"]["query_scale"].values())
    assert "<svg" in (out / "report.html").read_text()


def test_a_finished_run_is_read_and_not_done_again(tmp_path):
    first = tempera(*TINY, "--out", tmp_path / "run", "--json")
    marks = {p: p.stat().st_mtime_ns for p in (tmp_path / "run" / "jobs").iterdir()}
    assert len(marks) == 4
    again = tempera(*TINY, "--out", tmp_path / "run", "--json")
    assert again.returncode == 0 and again.stdout == first.stdout
    assert marks == {p: p.stat().st_mtime_ns for p in (tmp_path / "run" / "jobs").iterdir()}


def test_methods_start_from_the_same_weights_and_data(tmp_path):
    done = tempera("--steps", 1, "--batch", 2, "--methods", "softmax,head", "--seeds", 1, "--out", tmp_path / "r", "--json")
    curves = [m["loss_curves"] for m in json.loads(done.stdout)["results"].values()]
    assert curves[0] == curves[1]  # a head temperature starts at 1


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    assert tempera(*TINY, "--out", tmp_path / "run").returncode == 0
    refused = tempera(*TINY, "--learning-rate", "0.5", "--out", tmp_path / "run")
    assert refused.returncode == 2
    assert "learning-rate" in refused.stderr and "0.5" in refused.stderr


def test_an_unknown_method_suggests_the_nearest(tmp_path):
    refused = tempera("--methods", "softmax,focl", "--out", tmp_path / "run")
    assert refused.returncode == 2
    assert "focal" in refused.stderr
    assert not (tmp_path / "run" / "jobs").exists()


SMALL_TEXT = ["--methods", "softmax,ssa", "--seeds", "2", "--steps", "3", "--batch", "2", "--layers", "1",
              "--width", "32", "--heads", "2", "--context", "16"]


def test_text(tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    done = tempera("--text", tmp_path / "text.txt", "--out", tmp_path / "run", *SMALL_TEXT, "--json")
    assert done.returncode == 0, done.stderr
    for method in json.loads(done.stdout)["results"].values():
        assert method["loss"]["16"]["mean"] > 0 and len(method["accuracy"]["16"]["seeds"]) == 2
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("content, options, words", few(3, [
    (None, [], "there is no file"),
    (b"", [], "is empty"),
    (bytes(range(256)) * 9, [], "binary"),
    (b"too short", [], "too small"),
    (b"some text " * 90, ["--model.vocabulary", "10"], "vocabulary"),
    (b"some text " * 90, ["--heads", "5"], "does not divide"),
]))
def test_bad_input_is_refused_and_leaves_nothing(tmp_path, content, options, words):
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    done = tempera("--text", tmp_path / "text.txt", "--out", tmp_path / "run", *SMALL_TEXT, *options)
    assert done.returncode in (1, 2) and words in done.stderr, done.stderr
    assert not (tmp_path / "run").exists()


def test_an_interrupted_run_goes_on(tmp_path):
    long = ["--steps", "4000", "--methods", "softmax", "--seeds", "1", "--out", str(tmp_path / "run")]
    process = subprocess.Popen([PROGRAM, "compare", *long], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "settings.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "same command" in process.stderr.read()
