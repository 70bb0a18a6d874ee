"""Training that is killed, that runs out of space, that finds damaged files: nothing is lost."""

import importlib.machinery
import importlib.util
import re
import resource
import shutil
import signal
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, ROOT
from runs import held, stop, verbs

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")


def load_tool():
    loader = importlib.machinery.SourceFileLoader("crash_test_tool", str(ROOT / "tools" / "crash-test"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


tool = load_tool()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A text, and the log of a complete run on it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    text = verbs.write_text(folder / "text.txt")
    subprocess.run(verbs.train_command(PROGRAM, text, folder / "run"), check=True, capture_output=True)
    return text, verbs.read_log(folder / "run"), folder / "run"


def train(text, out, *more, **options):
    return subprocess.run(
        verbs.train_command(PROGRAM, text, out, *more), capture_output=True, text=True, timeout=PATIENCE, check=False, **options
    )


def begin(text, out):
    return subprocess.Popen(verbs.train_command(PROGRAM, text, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stop_training(text, out, number=signal.SIGTERM):
    """Gives the process's exit code and messages."""
    process, errors = stop(lambda: begin(text, out), out, 10, number)
    return process.returncode, errors


def assert_completes(text, out, expected, message):
    result = train(text, out)
    assert result.returncode == 0, result.stderr
    assert message in result.stderr
    assert verbs.read_log(out) == expected


# A study of scaling has its own test, with a hundred kills.
@pytest.mark.parametrize("verb", [verb for verb in verbs.VERBS if verb != "scaling"] if LONG else ["train", "calibrate", "compare"])
def test_kills_at_random_moments_lose_nothing(tmp_path, verb):
    kills = 20 if LONG else 2
    killed, runs = tool.crash_test(verb, kills, PROGRAM, tmp_path / verb)
    assert sum(killed.values()) == kills and runs >= 1


@pytest.mark.skipif(not LONG, reason="minutes: with TEMPERA_LONG=1")
def test_a_study_of_forty_models_killed_a_hundred_times_ends_with_the_same_bits(tmp_path):
    killed, runs = tool.crash_test("scaling", 100, PROGRAM, tmp_path / "scaling")
    assert sum(killed.values()) == 100 and runs >= 1


# What the tool has to notice: a program that loses a finished model, a user's file, or the bits of its result.
FAULTS = {
    "loses a model": ('rm -f "$out"/jobs/softmax-seed0.json', r"\d+ were saved, (now there are|but the program went on from) \d+"),
    "removes a neighbour": ('rm -f "$out".part', "which is not the program's"),
    "changes a result": ("""sed -i 's/"error":{"4":0/"error":{"4":1/' "$out"/jobs/softmax-seed0.json""", "finished and has changed"),
}


@pytest.mark.parametrize("fault", FAULTS if LONG else ["loses a model"])
def test_a_loss_is_noticed(tmp_path, fault):
    line, words = FAULTS[fault]
    program = tmp_path / "faulty"
    program.write_text(f'''#!/bin/bash
for word in "$@"; do [ "$previous" = --out ] && out=$word; previous=$word; done
[ -e "$out"/jobs/softmax-seed0.json ] && {line}
exec {PROGRAM} "$@"
''')
    program.chmod(0o755)
    with pytest.raises(tool.Failure, match=words) as failure:
        tool.crash_test("study", 50, program, tmp_path / "work", seed=1)
    if fault == "loses a model":
        before, now = re.search(r"(\d+) were saved, [a-z ]+(\d+)", str(failure.value)).groups()
        assert int(now) < int(before)


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)] if LONG else [(signal.SIGTERM, 143)])
def test_a_signal_saves_and_names_the_command_that_continues(tmp_path, undisturbed, number, code):
    text, expected, _ = undisturbed
    out = tmp_path / "run"
    returned, errors = stop_training(text, out, number)
    assert returned == code
    step = verbs.last_step(out)
    assert f"interrupted at step {step}" in errors
    line = errors.splitlines()[-1].strip()
    assert line == f"tempera train --config {out}/run.toml"
    result = subprocess.run(
        [PROGRAM, *line.split()[1:]], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert result.returncode == 0, result.stderr
    assert f"continuing the run in '{out}' from step {step} of {verbs.STEPS}" in result.stderr
    assert verbs.read_log(out) == expected


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, undisturbed):
    text, expected, _ = undisturbed
    out = tmp_path / "run"
    stop_training(text, out)
    step = verbs.last_step(out)
    size = (out / "last" / "optimizer.safetensors").stat().st_size
    result = train(text, out, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)))
    assert result.returncode == 1
    assert f"step {step + 1} cannot be saved" in result.stderr
    assert "File too large" in result.stderr
    assert f"step-{step:08d}" in result.stderr
    assert verbs.last_step(out) == step
    assert not [path for path in (out / "checkpoints").iterdir() if not path.name.startswith("step-")]
    assert_completes(text, out, expected, f"from step {step} ")


PARTS = ["model.safetensors", "state.json", "optimizer.safetensors", "config.json"]


@pytest.mark.parametrize("name", PARTS if LONG else PARTS[:2])
def test_a_torn_file_is_skipped(tmp_path, undisturbed, name):
    text, expected, _ = undisturbed
    out = tmp_path / "run"
    stop_training(text, out)
    step = verbs.last_step(out)
    path = out / "checkpoints" / f"step-{step:08d}" / name
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size // 2)
    result = train(text, out)
    assert result.returncode == 0, result.stderr
    assert "skipped a checkpoint" in result.stderr and name in result.stderr
    assert f"from step {step - 1} of" in result.stderr
    assert verbs.read_log(out) == expected


def test_files_of_another_run_are_skipped_or_refused(tmp_path, undisturbed):
    text, expected, other = undisturbed
    out = tmp_path / "run"
    stop_training(text, out)
    step = verbs.last_step(out)
    shutil.copytree(other / "checkpoints" / f"step-{verbs.STEPS:08d}", out / "checkpoints" / f"step-{verbs.STEPS:08d}")
    newest = out / "checkpoints" / f"step-{step:08d}"
    shutil.copy(other / "last" / "model.safetensors", newest / "model.safetensors")
    result = train(text, out)
    assert result.returncode == 0, result.stderr
    assert "belongs to another run" in result.stderr
    assert "is damaged or of another checkpoint" in result.stderr
    assert f"from step {step - 1} of" in result.stderr
    assert verbs.read_log(out) == expected


def test_without_a_good_checkpoint_nothing_is_overwritten(tmp_path, undisturbed):
    text, _, other = undisturbed
    out = tmp_path / "run"
    shutil.copytree(other, out, symlinks=True)
    for path in (out / "checkpoints").iterdir():
        (path / "state.json").write_text("{}")
    before = sorted(path.name for path in (out / "checkpoints").iterdir())
    result = train(text, out)
    assert result.returncode == 1
    assert "no checkpoint in" in result.stderr and "--out" in result.stderr
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == before


def test_a_kill_between_a_checkpoint_and_its_links(tmp_path, undisturbed):
    text, expected, other = undisturbed
    out = tmp_path / "run"
    shutil.copytree(other, out, symlinks=True)
    best = (out / "best").readlink()
    for link in ("last", "best"):
        (out / link).unlink()
        (out / link).symlink_to(f"checkpoints/step-{verbs.STEPS - 1:08d}")
    assert_completes(text, out, expected, f"from step {verbs.STEPS} of")
    assert verbs.last_step(out) == verbs.STEPS
    assert (out / "best").readlink() == best


def test_two_processes_in_one_folder(tmp_path, undisturbed):
    text, expected, _ = undisturbed
    out = tmp_path / "run"
    first = held(lambda: begin(text, out), out, 1)
    second = train(text, out)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 1
    assert f"another process (pid {first.pid}) is working in '{out}'" in second.stderr
    assert first.wait(PATIENCE) == 0
    assert verbs.read_log(out) == expected
