"""What a training tells of itself while it runs: watched numbers in its log, event files for TensorBoard, `tempera watch`."""

import json
import math
import os
import pathlib
import pty
import re
import signal
import subprocess
import time

import pytest
from program import LONG, PATIENCE, PROGRAM, fails, few, result, run, wait_until
from runs import held, verbs

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

SMALL = ["--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8, "--warmup", 2, "--eval-rows", 4,
         "--device", "cpu", "--threads", 1, "--temperature", "ssa", "--model.dropout-residual", 0.1]
GROUPS = {"embedding", "attention", "mlp", "vector", "temperature"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return verbs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def command(text, out, *more):
    return ["train", "--text", text, "--out", out, *SMALL, *more]


def train(text, out, *more):
    done = run(*command(text, out, *more))
    assert done.returncode == 0, done.stderr
    return out


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def watched(out):
    return {line["step"]: line["watched"] for line in log_of(out) if "watched" in line}


def weights(out):
    return [(out / "last" / name).read_bytes() for name in ("model.safetensors",)]


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """A finished run with event files."""
    folder = tmp_path_factory.mktemp("trained")
    return train(text, folder / "run", "--steps", 25, "--eval-every", 10, "--watch", 10, "--tensorboard", folder / "events")


def test_watched_steps_are_in_the_log(trained):
    found = watched(trained)
    assert list(found) == [10, 20, 25]
    for numbers in found.values():
        assert numbers["heads"] == 2 and [layer["layer"] for layer in numbers["layers"]] == ["0", "1"]
        for layer in numbers["layers"]:
            for name in ("entropy", "largest_logit", "temperature"):
                assert layer[name] == sorted(layer[name]) and len(layer[name]) == 5
            assert 0 < layer["entropy"][0] and layer["entropy"][4] < math.log(16)
        assert set(numbers["gradient_norms"]) == GROUPS
    for line in log_of(trained):
        if "watched" in line:
            norms = line["watched"]["gradient_norms"].values()
            assert math.isclose(math.hypot(*norms), line["gradient_norm"], rel_tol=1e-4)
            assert 0 < line["watch_seconds"] < 10
    # ssa makes the temperatures of heads differ as they learn.
    assert found[10] != found[25]


@pytest.mark.parametrize("more", [[], ["--ranks", 2], ["--ranks", 2, "--shard", "all", "--micro-batch", 2]] if LONG
                         else [[], ["--ranks", 2, "--shard", "all"]])
def test_watching_changes_no_bit(tmp_path, text, more):
    budget = ["--steps", 12, "--eval-every", 5, *more]
    never = train(text, tmp_path / "never", "--watch", 0, *budget)
    always = train(text, tmp_path / "always", "--watch", 1, *budget)
    assert not watched(never) and len(watched(always)) == 12
    assert weights(never) == weights(always)
    assert [line["loss"] for line in log_of(never) if "loss" in line] == [
        line["loss"] for line in log_of(always) if "loss" in line and line["step"] in (10, 12)]


@pytest.mark.parametrize("shard", few(2, ["optimizer", "all", "gradients", "none"]))
def test_ranks_watch_what_one_does(tmp_path, text, shard):
    budget = ["--steps", 6, "--watch", 2, "--model.dropout-residual", 0]
    one = watched(train(text, tmp_path / "one", *budget))
    two = watched(train(text, tmp_path / "two", *budget, "--ranks", 2, "--shard", shard))
    assert list(one) == list(two) == [2, 4, 6]
    for step, numbers in one.items():
        for name, norm in numbers["gradient_norms"].items():
            assert math.isclose(two[step]["gradient_norms"][name], norm, rel_tol=1e-3), (step, name)
        for mine, other in zip(numbers["layers"], two[step]["layers"]):
            assert mine["entropy"] == pytest.approx(other["entropy"], rel=1e-3)


def test_ranks_that_share_rows_watch_the_gradients(tmp_path, text):
    out = train(text, tmp_path / "run", "--steps", 4, "--watch", 2, "--model.dropout-residual", 0, "--ranks", 2, "--context-ranks", 2)
    assert list(watched(out)) == [2, 4]
    for numbers in watched(out).values():
        assert set(numbers) == {"gradient_norms"} and set(numbers["gradient_norms"]) == GROUPS
    assert "gradient norms  embedding" in run("watch", out).stdout


def events_of(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                      reason="the package tensorboard is not installed")
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    return events.Reload()


def scalars(events, tag):
    return {event.step: event.value for event in events.Scalars(tag)}


def assert_events_are_the_log(folder, out):
    events, log = events_of(folder), log_of(out)
    for key, tag in (("loss", "loss/train"), ("learning_rate", "learning_rate"), ("gradient_norm", "gradient_norm/all"),
                     ("validation_loss", "loss/validation"), ("perplexity", "perplexity/validation")):
        expected = [(line["step"], pytest.approx(line[key], rel=1e-6)) for line in log if key in line]
        assert [(event.step, event.value) for event in events.Scalars(tag)] == expected, tag
    times = [event.wall_time for event in events.Scalars("loss/train")]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 600
    for step, numbers in watched(out).items():
        for name, norm in numbers["gradient_norms"].items():
            assert scalars(events, f"gradient_norm/{name}")[step] == pytest.approx(norm, rel=1e-6)
        for layer in numbers["layers"]:
            for name in ("entropy", "largest_logit", "temperature"):
                place = f"layer_{layer['layer']}"
                assert scalars(events, f"{name}_median/{place}")[step] == pytest.approx(layer[name][2], rel=1e-6)
                histogram = {event.step: event.histogram_value for event in events.Histograms(f"{name}/{place}")}[step]
                assert (histogram.min, histogram.max) == (layer[name][0], layer[name][4])
                assert sum(histogram.bucket) == pytest.approx(histogram.num) == pytest.approx(numbers["heads"])


def test_tensorboard_reads_the_events(trained):
    assert_events_are_the_log(trained.parent / "events", trained)


def start(*arguments, **options):
    return subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_a_killed_run_goes_on_with_each_step_once(tmp_path, text):
    steps = ["--steps", 150, "--eval-every", 20, "--save-every", 10, "--log-every", 1, "--watch", 7]
    whole = train(text, tmp_path / "whole", *steps)
    out, events = tmp_path / "run", tmp_path / "events"
    events.mkdir()
    (events / "notes.txt").write_text("mine")
    for lines in (15, 60, 100):
        process = start(*command(text, out, *steps, "--tensorboard", events))
        wait_until(lambda: verbs.logged_lines(out) >= lines, process)
        process.kill()
        process.communicate()
    # Once without events, which the next process writes nevertheless.
    process = start(*command(text, out, *steps))
    wait_until(lambda: verbs.logged_lines(out) >= 125, process)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    train(text, out, *steps, "--tensorboard", events)
    assert weights(out) == weights(whole)
    assert verbs.read_log(out) == verbs.read_log(whole)
    assert (events / "notes.txt").read_text() == "mine"
    assert len(list(events.iterdir())) == 2
    assert_events_are_the_log(events, out)


def test_events_of_another_run_are_refused(tmp_path, text, trained):
    events = trained.parent / "events"
    before = {path.name: path.read_bytes() for path in events.iterdir()}
    done = run(*command(text, tmp_path / "run", "--steps", 3, "--tensorboard", events))
    assert done.returncode == 1 and "--tensorboard" in done.stderr and "another run" in done.stderr
    assert {path.name: path.read_bytes() for path in events.iterdir()} == before
    (tmp_path / "file").write_text("mine")
    done = run(*command(text, tmp_path / "other", "--steps", 3, "--tensorboard", tmp_path / "file"))
    assert done.returncode == 1 and "--tensorboard" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_finished_run_is_shown(trained):
    shown = run("watch", trained)
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    assert shown.stdout.startswith(f"train, finished  {trained}\n")
    for words in ("25 of 25, 100.0 %", "perplexity", "tokens/s", "largest logit", "gradient norms  embedding", "watched at step 25"):
        assert words in shown.stdout, shown.stdout
    assert run("watch", trained, "--once").stdout == shown.stdout
    found = result("watch", trained)
    log = log_of(trained)
    assert found["state"] == "finished" and found["verb"] == "train" and found["seconds_left"] is None
    assert found["losses"] == {"step": [10, 20, 25], "loss": [line["loss"] for line in log if "loss" in line]}
    assert found["validations"]["step"] == [10, 20, 25]
    assert found["best"]["validation_loss"] == min(found["validations"]["loss"])
    assert found["watched"] == watched(trained)[25] and found["watched_step"] == 25
    assert found["last"] == [line for line in log if "loss" in line][-1]
    assert 0 < found["watch_share"] < 1


def test_a_run_is_followed_until_it_ends(tmp_path, text):
    out = tmp_path / "run"
    # Enough steps for the lines to come one after the other.
    training = held(lambda: start(*command(text, out, "--steps", 1500, "--log-every", 50, "--eval-every", 500)), out, 1)
    now = result("watch", out)
    assert now["state"] == "running" and now["last"]["steps"] == 1500
    following = start("watch", out, "--every", 0.05)
    first = following.stdout.readline()
    training.send_signal(signal.SIGCONT)
    told, complaints = following.communicate(timeout=PATIENCE)
    told = first + told
    assert following.returncode == 0, complaints
    assert "\x1b" not in told
    assert told.startswith(f"train, running  {out}\n") and f"train, finished  {out}\n" in told
    found = re.findall(r"^step ([\d,]+) of 1,500  loss [\d.]+  [\d.]+k? tokens/s", told, flags=re.MULTILINE)
    lines = [int(step.replace(",", "")) for step in found]
    assert lines == sorted(set(lines)) and len(lines) > 2
    assert lines[-1] == 1500
    training.communicate(timeout=PATIENCE)
    assert training.returncode == 0


def test_a_terminal_is_redrawn(tmp_path, text):
    out = tmp_path / "run"
    training = held(lambda: start(*command(text, out, "--steps", 1500, "--log-every", 10)), out, 2)
    main, other = pty.openpty()
    watching = subprocess.Popen([PROGRAM, "watch", str(out), "--every", "0.05"], stdout=other, stderr=subprocess.STDOUT)
    os.close(other)
    shown = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
        training.send_signal(signal.SIGCONT)
    os.close(main)
    assert watching.wait(PATIENCE) == 0
    assert shown.count(b"\x1b[H") > 2 and b"running" in shown
    assert b"finished" in shown.rsplit(b"\x1b[2J", 1)[1]
    assert training.wait(PATIENCE) == 0


def test_watching_ends_with_a_signal_and_leaves_the_run_alone(tmp_path, text):
    out = tmp_path / "run"
    training = start(*command(text, out, "--steps", 1_000_000))
    assert wait_until(lambda: verbs.logged_lines(out) >= 1, training), training.communicate()[1]
    watching = start("watch", out, "--every", 60)
    assert watching.stdout.readline() == f"train, running  {out}\n"
    watching.send_signal(signal.SIGINT)
    told, _ = watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 0 and told.startswith(f"train, running  {out}\n")
    assert training.poll() is None
    training.kill()
    training.communicate()
    stopped = run("watch", out)
    assert stopped.returncode == 0 and "stopped" in stopped.stdout


def test_a_torn_line_and_wrong_ones_are_no_obstacle(tmp_path, trained):
    out = tmp_path / "run"
    out.mkdir()
    (out / "run.json").write_text((trained / "run.json").read_text())
    whole = run("watch", trained, "--once").stdout.replace(str(trained), str(out))
    log = (trained / "log.jsonl").read_text()
    (out / "log.jsonl").write_text(log + '{"step": 26, "lo')
    assert run("watch", out, "--once").stdout == whole
    assert result("watch", out)["last"]["step"] == 25
    wild = ['{"step": "x", "loss": 1}', '{"step": 1e308, "loss": -1e308}', '{"step": -5, "loss": null, "watched": 3}',
            '{"step": 3, "loss": "\\u001b[2J", "watched": {"layers": [3, {"layer": "\\u001b[31m", "entropy": [1, "x"]}], '
            '"gradient_norms": {"\\u001b": []}}}', '{"step": 4, "loss": [1], "watched": {"layers": {"a": 1}, "heads": {}}}']
    (out / "log.jsonl").write_text("\n".join(wild) + "\n")
    for more in ([], ["--once"], ["--json"]):
        done = run("watch", out, *more)
        assert done.returncode == 0 and "\x1b" not in done.stdout, (done.stdout, done.stderr)
    (out / "log.jsonl").unlink()
    assert "none was logged" in run("watch", out).stdout


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    fails(1, ["is not a folder", "--out"], "watch", tmp_path / "missing")
    (tmp_path / "notes.txt").write_text("mine")
    fails(1, ["is not the folder of a run", "run.json"], "watch", tmp_path)
    for content, words in (("{}", "not the description of a run"), ("[", "run.json"),
                           ('{"id": "1", "verb": "compare", "settings": {}}', "tempera compare")):
        (tmp_path / "run.json").write_text(content)
        fails(1, [words], "watch", tmp_path)
    assert sorted(path.name for path in pathlib.Path(tmp_path).iterdir()) == ["notes.txt", "run.json"]


def test_finetuning_and_calibration_are_watched_too(tmp_path, text, trained):
    out = tmp_path / "tuned"
    done = run("finetune", trained, "--text", text, "--out", out, "--steps", 6, "--watch", 3, "--length", 16, "--update", "lora",
               "--device", "cpu", "--threads", 1, "--tensorboard", tmp_path / "events")
    assert done.returncode == 0, done.stderr
    assert list(watched(out)) == [3, 6]
    assert set(watched(out)[6]["gradient_norms"]) == {"adapter", "temperature"}
    assert "finetune" in run("watch", out).stdout
    assert len(list((tmp_path / "events").iterdir())) == 1
    out = tmp_path / "calibrated"
    plain = SMALL[:SMALL.index("--temperature")]
    assert run("train", "--text", text, "--out", tmp_path / "plain", *plain, "--steps", 3).returncode == 0
    done = run("calibrate", tmp_path / "plain", "--text", text, "--out", out, "--tokens", 512, "--step-tokens", 64, "--eval-tokens", 64,
               "--eval-lengths", 16, "--passkey-cases", 0, "--device", "cpu", "--threads", 1, "--controls", "norm",
               "--tensorboard", tmp_path / "learning")
    assert done.returncode == 0, done.stderr
    assert list(watched(out)) == [8] and "value_scale" in watched(out)[8]["layers"][0]
    assert set(watched(out)[8]["gradient_norms"]) == {"vector", "temperature"}
    assert "calibrate, finished" in run("watch", out).stdout
    # Not the control's.
    assert len(list((tmp_path / "learning").iterdir())) == 1
