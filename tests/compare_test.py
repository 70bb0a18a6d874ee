"""`tempera compare` from outside: results, resuming, refusals."""

import json
import signal
import subprocess
import time

import pytest
from program import PATIENCE, PROGRAM, few, wait_until

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is not built")

TINY = ["--steps", "3", "--batch", "2", "--methods", "softmax,focal:t=0.2", "--seeds", "2", "--task.test-max", "64"]


def tempera(*arguments, **more):
    return subprocess.run([PROGRAM, "compare", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, **more)


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
    assert "  4/4 models  " in first.stderr and " steps/s" in first.stderr
    again = tempera(*TINY, "--out", tmp_path / "run", "--json")
    assert again.returncode == 0 and again.stdout == first.stdout
    assert "4 of 4 models were finished before" in again.stderr
    assert marks == {p: p.stat().st_mtime_ns for p in (tmp_path / "run" / "jobs").iterdir()}


def test_methods_start_from_the_same_weights_and_data(tmp_path):
    done = tempera("--steps", 1, "--batch", 2, "--methods", "softmax,head", "--seeds", 1, "--out", tmp_path / "r", "--json")
    curves = [m["loss_curves"] for m in json.loads(done.stdout)["results"].values()]
    assert curves[0] == curves[1]  # a head temperature starts at 1


def test_stages_have_rows_of_their_lengths(tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    small = ["--text", tmp_path / "text.txt", "--layers", 1, "--width", 32, "--heads", 2, "--context", 64, "--methods", "softmax",
             "--seeds", 1, "--batch", 4]
    done = tempera(*small, "--stages", "16:512,32:512", "--steps", 0, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    softmax = json.loads(done.stdout)["results"]["softmax"]
    assert softmax["steps"] == 8 and softmax["tokens"] == 1024
    refused = tempera(*TINY, "--stages", "16:512", "--out", tmp_path / "task")
    assert refused.returncode == 2 and "--stages need text" in refused.stderr


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
        assert list(method["loss"]) == ["16", "32", "64"]  # past the trained length too
        assert method["loss"]["16"]["mean"] > 0 and len(method["accuracy"]["16"]["seeds"]) == 2
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()


def some_text(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("".join(f"{i} bottles of beer on the wall, {i * i} bottles of beer; take {i % 7} down. " for i in range(400)))
    return path


SIZED = ["--methods", "softmax,ssa", "--seconds", "10"]


def test_a_comparison_on_text_sizes_itself(tmp_path):
    begin = time.monotonic()
    done = tempera("--text", some_text(tmp_path), "--out", tmp_path / "run", *SIZED)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < PATIENCE  # 14 hours without sizing
    for words in ("about", "parameters", "passes over the text", "held-out tokens", "can show", "cannot show", "more time"):
        assert words in done.stderr, done.stderr
    assert "loss against softmax" in done.stdout and "(p " in done.stdout
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    chosen = results["sizing"]["size"]
    # A faster machine affords more seeds; what is said is what was done.
    assert chosen["seeds"] >= 3 and len(results["results"]["ssa"]["loss"][str(chosen["context"])]["seeds"]) == chosen["seeds"]
    assert f"{2 * chosen['seeds']} models (2 methods, {chosen['seeds']} seeds)" in done.stderr
    assert results["settings"]["model"]["layers"] == chosen["layers"] and results["settings"]["steps"] == chosen["steps"]
    assert results["results"]["ssa"]["steps"] == chosen["steps"]
    assert list(results["results"]["ssa"]["loss"]) == [str(n * chosen["context"]) for n in (1, 2, 4)]
    assert "can show" in (tmp_path / "run" / "report.html").read_text()


def test_a_killed_comparison_goes_on_with_the_size_it_chose(tmp_path):
    command = ["--text", some_text(tmp_path), "--out", tmp_path / "run", *SIZED, "--layers", "3"]
    process = subprocess.Popen([PROGRAM, "compare", *map(str, command)], stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "run" / "sizing.json").exists, process)
    process.kill()
    process.wait()
    chosen = json.loads((tmp_path / "run" / "sizing.json").read_text())
    assert chosen["size"]["layers"] == 3
    # A size that no probe would choose shows that none was made.
    chosen["size"].update(steps=7, seeds=2, warmup=3)
    (tmp_path / "run" / "sizing.json").write_text(json.dumps(chosen))
    done = tempera(*command, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["seeds"] == 2 and results["results"]["ssa"]["steps"] == 7 and results["sizing"] == chosen
    refused = tempera(*command, "--width", "40")
    assert refused.returncode == 2 and "width" in refused.stderr


def test_a_built_in_task_is_not_fitted_to_a_time(tmp_path):
    refused = tempera(*TINY, "--seconds", "5", "--out", tmp_path / "run")
    assert refused.returncode == 2 and "--seconds" in refused.stderr and "--steps" in refused.stderr
    assert not (tmp_path / "run").exists()


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
    long = ["--steps", "1000000", "--methods", "softmax", "--seeds", "1", "--out", str(tmp_path / "run")]
    process = subprocess.Popen([PROGRAM, "compare", *long], stderr=subprocess.PIPE, text=True)
    wait_until((tmp_path / "run" / "run.json").exists, process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130
    assert "same command" in process.stderr.read()
