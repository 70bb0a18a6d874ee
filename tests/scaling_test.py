"""`tempera study scaling`: a grid of tiny models, its processes, and what goes wrong in it."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, is_running, run, wait_until
from ranks_test import ranks_below

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

GRID = """
sizes = ["1x32", "1x64", "2x64"]
methods = ["softmax", "ssa"]
tokens = [2000, 4000]
contexts = [16]
seeds = 2
learning-rate = 0.003
eval-tokens = 1024
held-out = 0.2
"""
CELLS = 3 * 2 * 2 * 2


long = pytest.mark.skipif(not LONG, reason="trains a study of its own: TEMPERA_LONG=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A text, a grid, and a finished study of them."""
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "text.txt").write_text("".join(f"{i * i % 97} is the rest of {i} squared.\n" for i in range(2000)))
    (folder / "grid.toml").write_text(GRID)
    result = study(folder, "done")
    assert result.returncode == 0, result.stderr
    return folder


def command(folder, out, *more, grid="grid.toml"):
    return [str(word) for word in (PROGRAM, "study", "scaling", folder / grid, "--text", folder / "text.txt", "--out",
                                   folder / out, "--jobs", 2, "--device", "cpu", *more)]


def study(folder, out, *more, grid="grid.toml"):
    return subprocess.run(command(folder, out, *more, grid=grid), capture_output=True, text=True, timeout=PATIENCE, check=False)


def start(folder, out, *more, grid="grid.toml"):
    return subprocess.Popen(command(folder, out, *more, grid=grid), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process, reached):
    assert wait_until(reached, process), process.communicate()[1]


def finished(folder, out):
    return len(list((folder / out / "jobs").glob("*.json")))


def losses(folder, out):
    return {path.name: json.loads(path.read_text())["losses"] for path in (folder / out / "jobs").glob("*.json")}


def workers_of(process):
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in children.stdout.split()]


def test_a_study_is_a_report_a_table_and_all_its_numbers(place):
    out = place / "done"
    for name in ("report.html", "report.svg", "report.png", "results.json", "cells.csv"):
        assert (out / name).stat().st_size > 1000, name
    rows = list(csv.DictReader((out / "cells.csv").open()))
    assert len(rows) == CELLS == finished(place, "done")
    assert {row["outcome"] for row in rows} == {"done"}
    for row in rows:
        assert 0 < float(row["loss"]) < 5.6
        for column in ("loss_2x", "loss_4x", "loss_8x", "recall", "entropy", "passes"):
            assert float(row[column]) >= 0, column
    results = json.loads((out / "results.json").read_text())
    assert results["complete"] is True
    fit = results["results"]["fits"][0]
    assert set(fit["laws"]) == {"softmax", "ssa"} and fit["laws"]["ssa"]["E"]["low"] <= fit["laws"]["ssa"]["E"]["high"]
    assert "says" in fit["share_of_the_first"]["ssa"]["parameters"]
    assert len(results["results"]["differences"]) == 6
    assert not [path for path in (out / "jobs").iterdir() if path.is_dir()]  # weights are not kept


@long
def test_methods_get_the_same_order_and_first_weights(place):
    """Focal attention with a temperature of 1 is plain attention: the same bits."""
    (place / "same.toml").write_text(GRID.replace('"ssa"', '"focal:t=1"').replace("[2000, 4000]", "[2000]"))
    assert study(place, "same", grid="same.toml").returncode == 0
    results = json.loads((place / "same" / "results.json").read_text())
    assert [row["loss_less_the_first"] for row in results["results"]["differences"]] == [0, 0, 0]


def test_a_finished_study_has_nothing_left_to_do(place):
    before = (place / "done" / "report.svg").read_bytes()
    result = study(place, "done", "--json")
    assert result.returncode == 0
    assert f"{CELLS} of {CELLS} models were finished before" in result.stderr
    assert json.loads(result.stdout)["complete"] is True
    assert (place / "done" / "report.svg").read_bytes() == before


def test_other_files_of_the_same_study_share_the_folder(place):
    (place / "more.toml").write_text(GRID.replace("[2000, 4000]", "[2000]").replace('"ssa"', '"ssmax"'))
    shutil.copytree(place / "done", place / "more")
    result = study(place, "more", place / "more.toml")
    assert result.returncode == 0, result.stderr
    assert f"{CELLS} of {CELLS + 6} models were finished before" in result.stderr
    assert set(json.loads((place / "more" / "results.json").read_text())["results"]["methods"]) == {"softmax", "ssa", "ssmax"}


@pytest.mark.parametrize("change, words", [
    (("held-out = 0.2", "held-out = 0.3"), "holds a study with other settings"),
    (("learning-rate = 0.003", "learning-rate = 0.002"), "holds a study with other settings"),
])
def test_two_studies_do_not_share_a_folder(place, change, words):
    (place / "other.toml").write_text(GRID.replace(*change))
    result = study(place, "done", grid="other.toml")
    assert result.returncode == 2 and words in result.stderr
    both = study(place, "new", place / "other.toml")
    assert both.returncode == 2 and "are of different studies" in both.stderr
    assert not (place / "new").exists()


def test_another_text_under_the_same_name_is_noticed(place, tmp_path):
    shutil.copytree(place / "done", tmp_path / "done")
    shutil.rmtree(tmp_path / "done" / "data")  # as on another machine
    (tmp_path / "text.txt").write_text("another text, with other words in it. " * 2000)
    result = subprocess.run([*command(place, "x")[:4], "--text", "text.txt", "--out", "done"], cwd=tmp_path, capture_output=True,
                            text=True, check=False)
    assert result.returncode == 2 and "text" in result.stderr
    mark = json.loads((tmp_path / "done" / "run.json").read_text())
    mark["settings"]["text"] = ["text.txt"]
    (tmp_path / "done" / "run.json").write_text(json.dumps(mark))
    result = subprocess.run([*command(place, "x")[:4], "--text", "text.txt", "--out", "done"], cwd=tmp_path, capture_output=True,
                            text=True, check=False)
    assert result.returncode == 1 and "the text is not the one that the study" in result.stderr


@pytest.mark.parametrize("grid, words", [
    ("methods = ['softmax']", "sizes is empty"),
    ('sizes = ["2x100x3"]\ntokens = [1000]', "3 heads do not divide a width of 100"),
    ('sizes = ["1x32"]\ntokens = [1000]\nseeds = 1000\ncontexts = [8, 9, 10, 11, 12, 13]', "cells; at most 10,000"),
    ('sizes = ["1x32"]\ntokens = [1000]\ncontexts = [4096]\nheld-out = 0.01', "the text is too small"),
    ('sizes = ["1x32"]\ntokens = [1000]\ntasks = ["pica=x.jsonl"]', "there is no task 'pica'"),
    ('sizes = ["1x32"]\ntoken = [1000]', "did you mean 'tokens'"),
])
def test_a_bad_grid_is_refused_before_any_work(place, grid, words):
    (place / "bad.toml").write_text(grid)
    result = study(place, "bad", grid="bad.toml")
    assert result.returncode == 2 and words in result.stderr
    assert not (place / "bad").exists()


def test_more_than_four_passes_are_warned_of_and_shown(place):
    (place / "passes.toml").write_text(GRID.replace("[2000, 4000]", "[300_000]").replace('"1x64", "2x64"', '').replace("seeds = 2", "seeds = 1"))
    process = start(place, "passes", grid="passes.toml")
    try:
        for line in process.stderr:
            if "warning: the longest training reads the text" in line:
                break
        else:
            pytest.fail("no warning")
    finally:
        process.kill()
        process.wait()


@long
def test_a_signal_saves_and_the_same_command_goes_on(place):
    process = start(place, "stopped")
    wait_for(process, lambda: finished(place, "stopped") >= 2)
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 143 and "To go on" in errors
    done = finished(place, "stopped")
    assert done < CELLS
    result = study(place, "stopped")
    assert result.returncode == 0 and f"{done} of {CELLS} models were finished before" in result.stderr
    assert losses(place, "stopped") == losses(place, "done")


@long
def test_a_worker_that_dies_is_replaced(place):
    process = start(place, "orphan")
    wait_for(process, lambda: finished(place, "orphan") >= 1)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, errors
    assert finished(place, "orphan") == CELLS


@long
def test_ranks_share_a_study(place):
    for ranks in (2, 3):
        out = f"of-{ranks}"
        done = study(place, out, "--ranks", ranks, "--jobs", 1)
        assert done.returncode == 0, done.stderr
        assert losses(place, out) == losses(place, "done")
        assert done.stderr.count(f"{CELLS}/{CELLS} models") >= 1 and done.stderr.count("at a time") == 1
        mine, theirs = (json.loads((place / name / "results.json").read_text()) for name in (out, "done"))
        assert mine["complete"] and [m["losses"] for m in mine["models"]] == [m["losses"] for m in theirs["models"]]


@long
def test_a_study_goes_on_without_a_killed_rank(place):
    process = start(place, "killed-rank", "--ranks", 2, "--jobs", 1)
    wait_for(process, lambda: finished(place, "killed-rank") >= 3)
    os.kill(ranks_below(process)[1], signal.SIGKILL)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 128 + signal.SIGKILL and "rank 1 was killed by signal 9" in errors
    assert 3 <= finished(place, "killed-rank") < CELLS
    done = study(place, "killed-rank")
    assert done.returncode == 0 and "models were finished before" in done.stderr, done.stderr
    assert losses(place, "killed-rank") == losses(place, "done")


@long
def test_workers_end_with_their_study(place):
    process = start(place, "killed")
    wait_for(process, lambda: finished(place, "killed") >= 1)
    workers = workers_of(process)
    assert len(workers) == 2
    process.kill()
    process.wait()
    assert wait_until(lambda: not any(is_running(worker) for worker in workers))
    assert study(place, "killed").returncode == 0
    assert losses(place, "killed") == losses(place, "done")


@long
def test_seconds_leave_the_rest_for_another_call(place):
    result = study(place, "short", "--seconds", 4)
    assert result.returncode == 0, result.stderr
    results = json.loads((place / "short" / "results.json").read_text())
    assert results["complete"] is False and "not done yet; the same command goes on" in result.stdout
    assert (place / "short" / "report.html").exists()
    assert study(place, "short").returncode == 0
    assert losses(place, "short") == losses(place, "done")


@long
def test_a_model_that_diverges_is_kept_shown_and_in_no_fit(place):
    (place / "wild.toml").write_text(GRID.replace("learning-rate = 0.003", "learning-rate = 1e6"))
    result = study(place, "wild", grid="wild.toml")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader((place / "wild" / "cells.csv").open()))
    diverged = [row for row in rows if row["outcome"] == "diverged"]
    assert diverged and all(row["loss"] == "" for row in diverged)
    results = json.loads((place / "wild" / "results.json").read_text())["results"]
    assert len(results["failures"]) == len(diverged)
    assert "Models that are left out of every table and fit" in (place / "wild" / "report.html").read_text()
    assert re.search(rf"{len(diverged)} models diverged or failed", result.stdout)


@long
def test_models_without_a_learning_rate_are_told_of(place):
    """As if all that was tried had diverged."""
    (place / "untuned.toml").write_text(GRID.replace("learning-rate = 0.003", "rates = [1, 2, 3, 4, 5, 6, 7, 8]")
                                        .replace("[2000, 4000]", "[500]").replace('"softmax", "ssa"', '"softmax"')
                                        .replace("seeds = 2", "seeds = 1").replace('"1x64", ', ""))
    result = study(place, "untuned", grid="untuned.toml")
    assert result.returncode == 0, result.stderr
    for path in (place / "untuned" / "jobs").glob("*.json"):
        job = json.loads(path.read_text())
        path.unlink()
        if job["purpose"] == "sweep":
            path.write_text(json.dumps({**job, "outcome": "diverged"}))
    result = study(place, "untuned", grid="untuned.toml")
    assert result.returncode == 0, result.stderr
    note = "no learning rate of softmax trained: 2 models left out"
    assert note in json.loads((place / "untuned" / "results.json").read_text())["notes"] and note in result.stdout
    assert note in (place / "untuned" / "report.html").read_text()


@long
def test_rates_are_tuned_by_one_rule_and_shown(place):
    (place / "tuned.toml").write_text(GRID.replace("learning-rate = 0.003", "rates = [1, 2]").replace("[2000, 4000]", "[2000]")
                                      .replace("seeds = 2", "seeds = 1"))
    result = study(place, "tuned", grid="tuned.toml")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader((place / "tuned" / "cells.csv").open()))
    for method in ("softmax", "ssa"):
        of = [row for row in rows if row["method"] == method]
        sweep = [row for row in of if row["purpose"] == "sweep"]
        assert {row["parameters"] for row in sweep} == {str(n) for n in sorted({int(row["parameters"]) for row in of})[:2]}
        assert len([row for row in of if row["purpose"] == "check"]) == 3
        rates = {int(row["width"]): float(row["learning_rate"]) for row in of if row["purpose"] == "cell"}
        assert rates[32] / rates[64] == pytest.approx(2**0.5, rel=2e-3)
        for width in (32, 64):
            tried = [float(row["learning_rate"]) for row in sweep if int(row["width"]) == width]
            assert min(tried) / 2 < rates[width] < max(tried) * 2
    assert "Learning rates that were tried" in (place / "tuned" / "report.html").read_text()


@pytest.mark.skipif(not LONG, reason="makes 5 MB of text and learns its tokens: TEMPERA_LONG=1")
def test_the_quick_study_makes_its_own_text(tmp_path):
    help_text = run("study", "scaling", "--help").stdout
    assert "--quick" in help_text
    result = subprocess.run([PROGRAM, "study", "scaling", "--quick", "--out", tmp_path / "quick", "--device", "cpu", "--seconds", "1"],
                            capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "quick" / "made-text.txt").stat().st_size > 5_000_000
    neither = subprocess.run([PROGRAM, "study", "scaling"], capture_output=True, text=True, check=False)
    assert neither.returncode == 2 and "no grid given" in neither.stderr
