"""Comparisons and studies whose models several ranks share: the results of one process, and nothing lost with a rank."""

import json
import os
import signal
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, run, wait_until
from ranks_restart_test import torchrun, workers_of
from ranks_test import QUICK, by_hand, ranks_below

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

TINY = ["--steps", 3, "--batch", 2, "--methods", "softmax,focal:t=0.2,ssa", "--seeds", 2, "--task.test-max", 64]
SLOW = ["--steps", 60, "--batch", 2, "--methods", "softmax,ssa", "--seeds", 4, "--task.test-max", 64]
TIMES = {"seconds", "cpu_seconds", "train_seconds", "cost", "seconds_per_token"}


def timeless(document):
    """Without what the clock says."""
    if isinstance(document, dict):
        return {name: timeless(value) for name, value in document.items() if name not in TIMES}
    return [timeless(value) for value in document] if isinstance(document, list) else document


def results(verb, out, *more):
    done = run(*verb, "--out", out, "--json", *more, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert json.loads((out / "results.json").read_text()) == document
    assert "<svg" in (out / "report.html").read_text()
    return timeless(document), done.stderr


STUDY = ["study", "denoise", "--methods", "softmax,ssa", "--seeds", 3, "--steps", 20, "--test-noise", "0,8"]


@pytest.mark.parametrize("verb, sizes", [(["compare", *TINY], (2, 3)), (STUDY, (3,))], ids=["compare", "study"])
def test_ranks_find_what_one_process_does(tmp_path, verb, sizes):
    alone, _ = results(verb, tmp_path / "alone")
    names = sorted(path.name for path in (tmp_path / "alone" / "jobs").iterdir())
    assert len(names) == 6
    for ranks in sizes:
        out = tmp_path / f"of-{ranks}"
        shared, said = results(verb, out, "--ranks", ranks, *QUICK)
        # Where it is, is in the settings.
        shared["settings"]["out"] = alone["settings"]["out"]
        assert shared == alone
        assert sorted(path.name for path in (out / "jobs").iterdir()) == names
        assert f"{len(names)}/{len(names)} models" in said and said.count("report: ") == 1


def test_ranks_size_a_comparison_together(tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 40)
    verb = ["compare", "--text", tmp_path / "text.txt", "--methods", "softmax,ssa", "--seeds", 2, "--steps", 3, "--batch", 2, "--layers", 1,
            "--width", 32, "--heads", 2, "--context", 16]
    alone, _ = results(verb, tmp_path / "alone")
    shared, said = results(verb, tmp_path / "shared", "--ranks", 2, *QUICK)
    assert shared["results"] == alone["results"]
    assert said.count("measuring how fast") == said.count("can show") == 1
    again, said = results(verb, tmp_path / "shared", "--ranks", 2, *QUICK)
    assert again == shared and "4 of 4 models were finished before" in said and "measuring" not in said


def start(out, *more):
    return subprocess.Popen([PROGRAM, "compare", *map(str, [*SLOW, "--threads", 1, "--out", out, *QUICK, *more])],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(out):
    """The results that are there, and since when."""
    jobs = out / "jobs"
    return {path.name: path.stat().st_mtime_ns for path in jobs.iterdir() if not path.name.startswith(".")} if jobs.exists() else {}


def wait_for_models(process, out, count):
    wait_until(lambda: len(finished(out)) >= count, process)
    assert process.poll() is None, process.communicate()[1]


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    return results(["compare", *SLOW], tmp_path_factory.mktemp("one") / "run")[0]["results"]


def test_a_killed_rank_is_named_and_finished_models_are_kept(tmp_path, of_one):
    out = tmp_path / "run"
    process = start(out, "--ranks", 2)
    wait_for_models(process, out, 2)
    os.kill(ranks_below(process)[1], signal.SIGKILL)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 128 + signal.SIGKILL
    assert "rank 1 was killed by signal 9" in errors
    kept = finished(out)
    assert 2 <= len(kept) < 8
    again, said = results(["compare", *SLOW], out, "--ranks", 3, *QUICK)
    assert f"{len(kept)} of 8 models were finished before" in said
    assert again["results"] == of_one
    assert kept.items() <= finished(out).items()


def test_a_signal_to_one_rank_stops_all(tmp_path, of_one):
    out = tmp_path / "run"
    process = start(out, "--ranks", 2)
    wait_for_models(process, out, 1)
    os.kill(ranks_below(process)[1], signal.SIGTERM)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert errors.count("the same command goes on") == 1
    assert results(["compare", *SLOW], out)[0]["results"] == of_one


def test_ranks_that_disagree_are_named(tmp_path):
    verb = ["compare", *TINY, *QUICK, "--out", tmp_path / "run"]
    found = by_hand([verb, [*verb, "--learning-rate", 0.5]], 2)
    assert [code for _, code in found] == [1, 1]
    words = "rank 0 has the setting learning-rate 0.01, and rank 1 has the setting learning-rate 0.5"
    assert (found[0][0] + found[1][0]).count(words) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb, words", [
    (["compare", "--methods", "softmax,focl"], "focal"),
    (["compare", "--text", "no/such/file.txt"], "there is no file"),
    (["study", "graph", "--methods", "softmax,softmax"], "softmax given twice"),
])
def test_what_ranks_cannot_do_is_said_once(tmp_path, verb, words):
    done = run(*verb, "--out", tmp_path / "run", "--ranks", 2, *QUICK, timeout=PATIENCE)
    assert done.returncode in (1, 2) and done.stderr.count(words) == 1, done.stderr
    assert not (tmp_path / "run").exists()


def test_a_study_that_cannot_be_shared_is_refused(tmp_path):
    [(errors, code)] = by_hand([["study", "dilution", "--run", tmp_path, "--out", tmp_path / "run"]], 2)
    assert code == 2 and "cannot share this study" in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not LONG, reason="starts ranks again and again: TEMPERA_LONG=1")
def test_torchrun_starts_killed_ranks_again(tmp_path, of_one):
    out = tmp_path / "run"
    agent = torchrun(["--standalone", "--nproc-per-node", 2, "--max-restarts", 3, "--monitor-interval", "0.05"],
                     "compare", *SLOW, "--threads", 1, "--out", out, *QUICK)
    for models in (1, 3, 5):
        wait_for_models(agent, out, models)
        assert wait_until(lambda: len(workers_of(agent)) == 2, agent)  # after the restart before
        victims = workers_of(agent)
        os.kill(victims[models % 2], signal.SIGKILL)
        assert wait_until(lambda: not set(workers_of(agent)) & set(victims), agent)
    errors = agent.communicate(timeout=PATIENCE)[1]
    assert agent.returncode == 0, errors
    assert timeless(json.loads((out / "results.json").read_text()))["results"] == of_one
