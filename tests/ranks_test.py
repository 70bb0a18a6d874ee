"""Training by several ranks: the same numbers as by one, and nothing lost when one of them is."""

import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

import pytest
from program import LONG, PROGRAM, ROOT, run

sys.path.append(str(ROOT / "tools"))
import crash_verbs as verbs  # noqa: E402

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"
STEPS = 50
MANY = 80  # for a signal to come in between
SMALL = ["--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8, "--warmup", 5,
         "--eval-rows", 8, "--log-every", 1, "--threads", 1, "--device", "cpu", "--temperature", "ssa"]
QUICK = ["--rank-timeout", 20]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return verbs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def command(text, out, *more):
    return ["train", "--text", text, "--out", out, "--steps", STEPS, *SMALL, *QUICK, *more]


def train(text, out, *more, **options):
    done = run(*command(text, out, *more), timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def losses(log, name="loss"):
    return [line[name] for line in log if name in line]


def assert_close(log, expected, within):
    for name in ("loss", "validation_loss", "gradient_norm"):
        mine, theirs = losses(log, name), losses(expected, name)
        assert len(mine) == len(theirs) > 0
        assert max(abs(a - b) / b for a, b in zip(mine, theirs)) < within, name


@pytest.fixture(scope="module")
def of_one(text, tmp_path_factory):
    """The log of one rank, for each optimizer."""
    logs = {}

    def log(*more):
        if more not in logs:
            logs[more] = train(text, tmp_path_factory.mktemp("one") / "run", *more)
        return logs[more]
    return log


CASES = [(ranks, shard, optimizer) for optimizer in ("adamw", "muon") for shard in ("optimizer", "gradients", "none")
         for ranks in (2, 4)]
FEW = [(2, "optimizer", "adamw"), (4, "gradients", "adamw"), (2, "none", "muon"), (4, "optimizer", "muon")]


@pytest.mark.parametrize("ranks, shard, optimizer", CASES if LONG else FEW)
def test_ranks_learn_what_one_learns(tmp_path, text, of_one, ranks, shard, optimizer):
    log = train(text, tmp_path / "run", "--ranks", ranks, "--shard", shard, "--optimizer", optimizer)
    assert_close(log, of_one("--optimizer", optimizer), 1e-6)


def test_micro_batches_of_ranks_are_those_of_one(tmp_path, text, of_one):
    more = ("--micro-batch", 2, "--model.dropout-residual", 0.1)
    log = train(text, tmp_path / "run", "--ranks", 2, "--shard", "gradients", *more)
    assert_close(log, of_one(*more), 1e-6)


def test_ranks_finetune_what_one_does(tmp_path, text):
    train(text, tmp_path / "model", "--steps", 5)
    logs = []
    for ranks in (1, 2):
        out = tmp_path / f"tuned-{ranks}"
        done = run("finetune", tmp_path / "model", "--text", text, "--out", out, "--update", "lora", "--ranks", ranks,
                   "--steps", 10, "--log-every", 1, "--length", 16, "--device", "cpu", "--threads", 1, *QUICK, timeout=120)
        assert done.returncode == 0, done.stderr
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    assert_close(logs[1], logs[0], 1e-6)


def test_the_same_number_of_ranks_gives_the_same_bits(tmp_path, text):
    logs = [train(text, tmp_path / name, "--ranks", 2, "--steps", 20) for name in ("a", "b")]
    assert losses(logs[0]) == losses(logs[1])
    assert losses(logs[0], "validation_loss") == losses(logs[1], "validation_loss")


def test_bfloat16_keeps_weights_in_full(tmp_path, text, of_one):
    log = train(text, tmp_path / "run", "--ranks", 2, "--dtype", "bf16")
    assert_close(log, of_one("--dtype", "bf16"), 2e-2)


def start(text, out, *more, **options):
    return subprocess.Popen([PROGRAM, *map(str, command(text, out, *more))], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **options)


def wait_for_lines(process, out, lines):
    deadline = time.monotonic() + 60
    while verbs.logged_lines(out) < lines and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()[1]


def interrupt(text, out, lines, *more):
    """A run that is told to stop after as many lines of its log; gives the step that it saved."""
    process = start(text, out, *more)
    wait_for_lines(process, out, lines)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    return verbs.last_step(out)


def ranks_below(process):
    """The processes of the ranks, in their order."""
    found = {}
    for path in pathlib.Path("/proc").iterdir():
        try:
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) != process.pid:
                continue
            variables = dict(entry.split("=", 1) for entry in (path / "environ").read_text().split("\0") if "=" in entry)
            found[int(variables["RANK"])] = int(path.name)
        except (OSError, ValueError, KeyError, IndexError):
            continue
    return [found[rank] for rank in sorted(found)]


@pytest.fixture(scope="module")
def of_two(text, tmp_path_factory):
    return train(text, tmp_path_factory.mktemp("two") / "run", "--ranks", 2, "--save-every", 1, "--steps", MANY)


def timeless(log):
    return [verbs.timeless(line) for line in log]


@pytest.mark.parametrize("rank", [0, 1] if LONG else [1])
def test_a_killed_rank_stops_the_others_and_is_named(tmp_path, text, of_two, rank):
    out = tmp_path / "run"
    more = ("--ranks", 2, "--save-every", 1, "--steps", MANY)
    process = start(text, out, *more)
    wait_for_lines(process, out, 5)
    os.kill(ranks_below(process)[rank], signal.SIGKILL)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signal.SIGKILL
    assert f"rank {rank} was killed by signal 9" in errors
    assert timeless(train(text, out, *more)) == timeless(of_two)


def test_a_stopped_rank_is_named(tmp_path, text):
    out = tmp_path / "run"
    process = start(text, out, "--ranks", 2, "--steps", 100000, "--rank-timeout", 3)
    wait_for_lines(process, out, 5)
    victim = ranks_below(process)[1]
    os.kill(victim, signal.SIGSTOP)
    try:
        first = ranks_below(process)[0]
        deadline = time.monotonic() + 40
        while os.path.exists(f"/proc/{first}") and time.monotonic() < deadline:
            if pathlib.Path(f"/proc/{first}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                break
            time.sleep(0.05)
    finally:
        os.kill(victim, signal.SIGKILL)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode != 0
    assert "rank 1 (machine " in errors and f"process {victim})" in errors


@pytest.mark.parametrize("whom", ["launcher", "rank"] if LONG else ["rank"])
def test_a_signal_to_one_saves_in_all(tmp_path, text, of_two, whom):
    out = tmp_path / "run"
    more = ("--ranks", 2, "--save-every", 0, "--steps", MANY)
    process = start(text, out, *more)
    wait_for_lines(process, out, 5)
    begin = time.monotonic()
    os.kill(process.pid if whom == "launcher" else ranks_below(process)[1], signal.SIGTERM)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert time.monotonic() - begin < 30
    assert f"interrupted at step {verbs.last_step(out)}" in errors
    # The times of saving are others, which no number of the training depends on.
    log = train(text, out, *more)
    assert losses(log) == losses(of_two)


@pytest.mark.parametrize("then", [["--ranks", 4, "--shard", "gradients"], ["--ranks", 1], ["--ranks", 2, "--shard", "none"]])
def test_a_checkpoint_fits_any_number_of_ranks(tmp_path, text, of_one, then):
    out = tmp_path / "run"
    step = interrupt(text, out, 20, "--ranks", 2)
    names = {path.name for path in (out / "last").iterdir()}
    assert {"optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"} <= names
    assert "optimizer.safetensors" not in names
    log = train(text, out, *then)
    assert step < STEPS
    assert_close(log, of_one(), 1e-6)
    exported = run("export", out, "--out", tmp_path / "exported")
    assert exported.returncode == 0, exported.stderr


@pytest.mark.parametrize("damage", ["missing", "torn"] if LONG else ["torn"])
def test_a_damaged_shard_is_skipped(tmp_path, text, of_two, damage):
    out = tmp_path / "run"
    more = ("--ranks", 2, "--save-every", 1, "--steps", MANY)
    step = interrupt(text, out, 10, *more)
    shard = out / "last" / "optimizer-00002-of-00002.safetensors"
    if damage == "missing":
        shard.unlink()
    else:
        with open(shard, "r+b") as file:
            file.truncate(shard.stat().st_size // 2)
    done = run(*command(text, out, *more), timeout=120)
    assert done.returncode == 0, done.stderr
    assert "skipped a checkpoint" in done.stderr and shard.name in done.stderr
    assert f"from step {step - 1} of" in done.stderr
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert losses(log) == losses(of_two)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def by_hand(arguments_of_rank, ranks, **more):
    """Ranks with plain environment variables."""
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
    processes = [
        subprocess.Popen([PROGRAM, *map(str, arguments)], env={**os.environ, **place, "RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank, arguments in enumerate(arguments_of_rank)]
    return [(process.communicate(timeout=60)[1], process.returncode) for process in processes]


def test_ranks_by_plain_variables(tmp_path, text):
    out = tmp_path / "run"
    results = by_hand([command(text, out, "--steps", 5)] * 2, 2)
    assert [code for _, code in results] == [0, 0], results
    assert verbs.last_step(out) == 5


def test_ranks_that_disagree_are_named(tmp_path, text):
    out = tmp_path / "run"
    results = by_hand([command(text, out), command(text, out, "--learning-rate", 0.5)], 2)
    assert [code for _, code in results] == [1, 1]
    words = "rank 0 has the setting learning-rate 0.003, and rank 1 has the setting learning-rate 0.5"
    assert (results[0][0] + results[1][0]).count(words) == 1
    assert not out.exists() or not (out / "checkpoints").exists()


def test_a_missing_rank_is_named(tmp_path, text):
    error_file = tmp_path / "error.json"
    [(errors, code)] = by_hand([command(text, tmp_path / "run", "--rank-timeout", 1)], 2,
                               TORCHELASTIC_ERROR_FILE=str(error_file))
    assert code == 1
    assert "rank 1 of 2 did not come within 1 s" in errors
    message = json.loads(error_file.read_text())["message"]
    assert "did not come" in message["message"] and int(message["extraInfo"]["timestamp"]) > 0


def test_a_meeting_point_that_does_not_answer_is_named(tmp_path, text):
    done = run(*command(text, tmp_path / "run", "--rank-timeout", 1), timeout=60,
               env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
    assert done.returncode == 1
    assert "did not answer within 1 s" in done.stderr and "MASTER_ADDR" in done.stderr


def workers_of(agent):
    """The ranks that a torchrun has started."""
    return [process for process in ranks_below(agent) if process != agent.pid]


def torchrun(agents, *arguments):
    return subprocess.Popen([TORCHRUN, "--no-python", *map(str, agents), PROGRAM, *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_under_torchrun(text, out, ranks, kills, draw):
    """Kills random ranks of a run until it is complete; gives how many."""
    more = ("--ranks", ranks, "--save-every", 1, "--steps", MANY)
    agent = torchrun(["--standalone", "--nproc-per-node", ranks, "--max-restarts", kills, "--monitor-interval", "0.05"],
                     *command(text, out, *more))
    done = 0
    while done < kills and agent.poll() is None:
        lines = verbs.logged_lines(out) + draw.randint(1, 8)
        deadline = time.monotonic() + 60
        while verbs.logged_lines(out) < lines and agent.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.1))
        victims = workers_of(agent)
        if len(victims) != ranks:
            continue
        os.kill(draw.choice(victims), signal.SIGKILL)
        done += 1
        while set(workers_of(agent)) & set(victims) and agent.poll() is None:
            time.sleep(0.01)
    errors = agent.communicate(timeout=300)[1]
    assert agent.returncode == 0, errors
    return done


def test_kills_under_torchrun_lose_nothing(tmp_path, text, of_two):
    draw = random.Random(1)
    killed = 0
    while killed < (24 if LONG else 2):
        out = tmp_path / f"run-{killed}"
        killed += kill_under_torchrun(text, out, 2, 12 if LONG else 2, draw)
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        assert timeless(log) == timeless(of_two)


@pytest.mark.parametrize("more, words", [
    (["--ranks", 3], "a step of 8 rows given (--batch), and 3 ranks; expected a multiple of 3"),
    (["--ranks", 2, "--backend", "nccl"], "NCCL needs GPUs"),
])
def test_what_ranks_cannot_do_is_said_once(tmp_path, text, more, words):
    done = run(*command(text, tmp_path / "run", *more), timeout=60)
    assert done.returncode == 2
    assert done.stderr.count(words) == 1, done.stderr


def test_the_environment_and_the_option_must_agree(tmp_path, text):
    done = run(*command(text, tmp_path / "run", "--ranks", 3), timeout=60,
               env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"})
    assert done.returncode == 2
    assert "--ranks 3 given, and the environment says that 2 ranks were started" in done.stderr
