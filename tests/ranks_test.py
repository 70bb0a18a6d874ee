"""Training by several ranks: the same numbers as by one, and nothing lost when one of them is."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest
from program import LONG, PATIENCE, PROGRAM, few, is_running, result, run, wait_until
from runs import stop, verbs

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

STEPS = 50
MANY = 80  # for a signal to come in between
SMALL = ["--layers", 2, "--width", 32, "--heads", 2, "--context", 16, "--batch", 8, "--warmup", 5,
         "--eval-rows", 8, "--log-every", 1, "--threads", 1, "--device", "cpu", "--temperature", "ssa"]
QUICK = ["--rank-timeout", 60]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return verbs.write_text(tmp_path_factory.mktemp("text") / "text.txt")


def command(text, out, *more):
    return ["train", "--text", text, "--out", out, "--steps", STEPS, *SMALL, *QUICK, *more]


def train(text, out, *more, **options):
    done = run(*command(text, out, *more), **options)
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


CASES = [(ranks, shard, optimizer) for optimizer in ("adamw", "muon") for shard in ("optimizer", "gradients", "all", "none")
         for ranks in (2, 4)]
FEW = [(2, "optimizer", "adamw"), (2, "all", "adamw"), (4, "gradients", "muon")]


@pytest.mark.parametrize("ranks, shard, optimizer", CASES if LONG else FEW)
def test_ranks_learn_what_one_learns(tmp_path, text, of_one, ranks, shard, optimizer):
    log = train(text, tmp_path / "run", "--ranks", ranks, "--shard", shard, "--optimizer", optimizer)
    assert_close(log, of_one("--optimizer", optimizer), 1e-6)


@pytest.mark.parametrize("shard", ["gradients", "all"])
def test_micro_batches_of_ranks_are_those_of_one(tmp_path, text, of_one, shard):
    more = ("--micro-batch", 2, "--model.dropout-residual", 0.1)
    log = train(text, tmp_path / "run", "--ranks", 2, "--shard", shard, *more)
    assert_close(log, of_one(*more), 1e-6)


def test_ranks_recompute_with_a_share_of_the_parameters(tmp_path, text, of_one):
    log = train(text, tmp_path / "run", "--ranks", 2, "--shard", "all", "--recompute")
    assert_close(log, of_one(), 1e-6)


def test_ranks_that_validate_other_numbers_of_rows_stay_together(tmp_path, text, of_one):
    more = ("--eval-rows", 5, "--micro-batch", 2)
    log = train(text, tmp_path / "run", "--ranks", 4, "--shard", "all", *more)
    assert_close(log, of_one(*more), 1e-6)
    # Ranks wait for each other while they validate and save, too, which is no time of their steps.
    assert all(0 < line["rank_seconds"]["median"] <= line["rank_seconds"]["slowest"] for line in log if "rank_seconds" in line)


@pytest.mark.parametrize("sharing", [1, 2])
def test_ranks_finetune_what_one_does(tmp_path, text, sharing):
    train(text, tmp_path / "model", "--steps", 5)
    logs = []
    for ranks in (1, 2):
        out = tmp_path / f"tuned-{ranks}"
        done = run("finetune", tmp_path / "model", "--text", text, "--out", out, "--update", "lora", "--ranks", ranks,
                   "--context-ranks", min(ranks, sharing), "--steps", 10, "--log-every", 1, "--length", 16, "--device", "cpu", "--threads", 1, *QUICK, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    assert_close(logs[1], logs[0], 1e-6)


SHARED = [(2, 2, "optimizer", []), (4, 2, "gradients", ["--micro-batch", 2]), (4, 4, "all", ["--recompute"]), (2, 2, "none", ["--model.window", 5]),
          (2, 2, "all", ["--temperature", "focal-learned", "--model.kv-heads", 1, "--model.token-shift"])]


@pytest.mark.parametrize("ranks, sharing, shard, more", SHARED if LONG else SHARED[4:])
def test_ranks_that_share_rows_learn_what_one_learns(tmp_path, text, of_one, ranks, sharing, shard, more):
    log = train(text, tmp_path / "run", "--ranks", ranks, "--context-ranks", sharing, "--shard", shard, *more)
    expected = of_one(*more)
    assert_close(log, expected, 1e-6)
    assert losses(log, "tokens") == losses(expected, "tokens")


def test_ranks_that_share_windows_measure_what_one_does(tmp_path, text):
    train(text, tmp_path / "model", "--steps", 5)
    found = [result("eval", tmp_path / "model", "--text", text, "--window", 30, "--stride", 20, "--eval-tokens", 500, "--device", "cpu",
                    "--threads", 1, "--ranks", ranks, "--context-ranks", ranks, *QUICK) for ranks in (1, 2, 3)]
    for shared in found[1:]:
        assert shared["tokens"] == found[0]["tokens"]
        assert shared["loss"] == pytest.approx(found[0]["loss"], rel=1e-6)
        assert shared["by_position"] == [{**bucket, "loss": pytest.approx(bucket["loss"], rel=1e-6),
                                          **({"perplexity": pytest.approx(bucket["perplexity"], rel=1e-6)} if "perplexity" in bucket else {})}
                                         for bucket in found[0]["by_position"]]
    done = run("eval", tmp_path / "model", "--text", text, "--ranks", 2, *QUICK)
    assert done.returncode == 2 and "all ranks share each window" in done.stderr
    done = run("eval", tmp_path / "model", "--task", "phonebook", "--ranks", 2, "--context-ranks", 2, *QUICK)
    assert done.returncode == 2 and "the windows of a text" in done.stderr


def test_rows_of_any_length_are_shared(tmp_path):
    logs = []
    for ranks in (1, 2):
        out = tmp_path / f"run-{ranks}"
        done = run("train", "--task", "passkey", "--out", out, "--steps", 10, "--batch", 4, "--log-every", 1, "--threads", 1,
                   "--ranks", ranks, "--context-ranks", ranks, "--eval-rows", 0, *QUICK, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    assert losses(logs[1]) == pytest.approx(losses(logs[0]), rel=1e-6)
    assert losses(logs[1], "tokens") == losses(logs[0], "tokens")


@pytest.mark.parametrize("shard, sharing", [("optimizer", 1), ("all", 1), ("optimizer", 2)] if LONG else [("all", 1)])
def test_the_same_number_of_ranks_gives_the_same_bits(tmp_path, text, shard, sharing):
    logs = [train(text, tmp_path / name, "--ranks", 2, "--shard", shard, "--context-ranks", sharing, "--steps", 20) for name in ("a", "b")]
    assert losses(logs[0]) == losses(logs[1])
    assert losses(logs[0], "validation_loss") == losses(logs[1], "validation_loss")


@pytest.mark.parametrize("sharing", [1, 2] if LONG else [2])
def test_bfloat16_keeps_weights_in_full(tmp_path, text, of_one, sharing):
    log = train(text, tmp_path / "run", "--ranks", 2, "--context-ranks", sharing, "--dtype", "bf16")
    assert_close(log, of_one("--dtype", "bf16"), 2e-2)


def start(text, out, *more, **options):
    return subprocess.Popen([PROGRAM, *map(str, command(text, out, *more))], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **options)


def interrupt(text, out, lines, *more):
    """A run that is told to stop after as many lines of its log; gives the step that it saved."""
    process, errors = stop(lambda: start(text, out, *more), out, lines)
    assert process.returncode == 143, errors
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
    process, errors = stop(lambda: start(text, out, *more), out, 5, signal.SIGKILL, lambda process: ranks_below(process)[rank])
    assert process.returncode == 128 + signal.SIGKILL
    assert f"rank {rank} was killed by signal 9" in errors
    assert timeless(train(text, out, *more)) == timeless(of_two)


@pytest.mark.skipif(not LONG, reason="three runs of four ranks: TEMPERA_LONG=1")
def test_a_killed_rank_stops_those_of_other_rows(tmp_path, text):
    more = ("--ranks", 4, "--context-ranks", 2, "--save-every", 1, "--steps", MANY)
    out = tmp_path / "run"
    _, errors = stop(lambda: start(text, out, *more), out, 5, signal.SIGKILL, lambda process: ranks_below(process)[3])
    assert "rank 3 was killed by signal 9" in errors
    assert timeless(train(text, out, *more)) == timeless(train(text, tmp_path / "whole", *more))


def test_ranks_without_their_launcher_end_while_they_start(tmp_path, text):
    process = start(text, tmp_path / "run", "--ranks", 2, "--steps", 100000, "--rank-timeout", 300)
    wait_until(lambda: len(ranks_below(process)) == 2, process)
    ranks = ranks_below(process)
    process.kill()
    # Far less than the ranks wait for each other.
    begin = time.monotonic()
    while any(os.path.exists(f"/proc/{rank}") for rank in ranks) and time.monotonic() - begin < 100:
        time.sleep(0.05)
    left = [rank for rank in ranks if os.path.exists(f"/proc/{rank}")]
    for rank in left:
        os.kill(rank, signal.SIGKILL)
    process.communicate()
    assert len(ranks) == 2 and not left


def test_a_stopped_rank_is_named(tmp_path, text):
    out = tmp_path / "run"
    process = start(text, out, "--ranks", 2, "--steps", 100000, "--rank-timeout", 8)
    assert wait_until(lambda: verbs.logged_lines(out) >= 5, process), process.communicate()[1]
    victim = ranks_below(process)[1]
    os.kill(victim, signal.SIGSTOP)
    try:
        first = ranks_below(process)[0]
        wait_until(lambda: not is_running(first))
    finally:
        os.kill(victim, signal.SIGKILL)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode != 0
    assert "rank 1 (machine " in errors and f"process {victim})" in errors


@pytest.mark.parametrize("whom", ["launcher", "rank"] if LONG else ["rank"])
def test_a_signal_to_one_saves_in_all(tmp_path, text, of_two, whom):
    out = tmp_path / "run"
    more = ("--ranks", 2, "--save-every", 0, "--steps", MANY)
    process, errors = stop(lambda: start(text, out, *more), out, 5, signal.SIGTERM,
                           lambda process: process.pid if whom == "launcher" else ranks_below(process)[1])
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert f"interrupted at step {verbs.last_step(out)}" in errors
    # The times of saving are others, which no number of the training depends on.
    log = train(text, out, *more)
    assert losses(log) == losses(of_two)


@pytest.mark.parametrize("shard, then", few(2, [
    ("optimizer", ["--ranks", 4, "--shard", "gradients"]), ("optimizer", ["--ranks", 1]),
    ("optimizer", ["--ranks", 2, "--shard", "none"]), ("optimizer", ["--ranks", 4, "--shard", "all"]),
    ("all", ["--ranks", 1]), ("all", ["--ranks", 4, "--shard", "optimizer"])]))
def test_a_checkpoint_fits_any_number_of_ranks(tmp_path, text, of_one, shard, then):
    out = tmp_path / "run"
    step = interrupt(text, out, 20, "--ranks", 2, "--shard", shard)
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
    done = run(*command(text, out, *more))
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
    return [(process.communicate(timeout=PATIENCE)[1], process.returncode) for process in processes]


def test_ranks_by_plain_variables(tmp_path, text):
    out = tmp_path / "run"
    results = by_hand([command(text, out, "--steps", 5)] * 2, 2)
    assert [code for _, code in results] == [0, 0], results
    assert verbs.last_step(out) == 5


@pytest.mark.parametrize("setting, given, other", [("learning-rate", 0.003, 0.5), ("watch", 100, 7)])
def test_ranks_that_disagree_are_named(tmp_path, text, setting, given, other):
    out = tmp_path / "run"
    results = by_hand([command(text, out), command(text, out, f"--{setting}", other)], 2)
    assert [code for _, code in results] == [1, 1]
    words = f"rank 0 has the setting {setting} {given}, and rank 1 has the setting {setting} {other}"
    assert (results[0][0] + results[1][0]).count(words) == 1
    assert not out.exists() or not (out / "checkpoints").exists()


def test_a_missing_rank_is_named(tmp_path, text):
    error_file = tmp_path / "error.json"
    [(errors, code)] = by_hand([command(text, tmp_path / "run", "--rank-timeout", 5)], 2,
                               TORCHELASTIC_ERROR_FILE=str(error_file))
    assert code == 1
    assert "rank 1 of 2 did not come within 5 s" in errors
    message = json.loads(error_file.read_text())["message"]
    assert "did not come" in message["message"] and int(message["extraInfo"]["timestamp"]) > 0


def test_a_meeting_point_that_does_not_answer_is_named(tmp_path, text):
    done = run(*command(text, tmp_path / "run", "--rank-timeout", 1),
               env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
    assert done.returncode == 1
    assert "did not answer within 1 s" in done.stderr and "MASTER_ADDR" in done.stderr


@pytest.mark.parametrize("more, words", [
    (["--ranks", 3], "a step of 8 rows given (--batch), and 3 ranks; expected a multiple of 3"),
    (["--ranks", 2, "--backend", "nccl"], "NCCL needs GPUs"),
    (["--ranks", 4, "--context-ranks", 3], "--context-ranks 3 given, and 4 ranks"),
    (["--ranks", 3, "--stages", "16:800,32:800"], "a step of 16 rows given (--batch), and 3 ranks; expected a multiple of 3"),
    (["--context-ranks", 2], "--context-ranks 2 given, and 1 rank (--ranks)"),
    (["--ranks", 6, "--context-ranks", 2], "6 ranks, of which 2 share each row; expected a multiple of 3"),
    (["--ranks", 2, "--context-ranks", 2, "--context", 18], "sequences of 18 tokens; expected a multiple of 4"),
    (["--ranks", 2, "--context-ranks", 2, "--model.position", "t5"], "T5's positions"),
    (["--ranks", 2, "--context-ranks", 2, "--model.dropout-residual", 0.1], "the model has dropout"),
    (["--ranks", 2, "--context-ranks", 2, "--model.kind", "encoder"], "only a decoder's sequences"),
])
def test_what_ranks_cannot_do_is_said_once(tmp_path, text, more, words):
    done = run(*command(text, tmp_path / "run", *more))
    assert done.returncode == 2
    assert done.stderr.count(words) == 1, done.stderr


@pytest.mark.parametrize("verb, more, words", [
    ("finetune", ["--batch", 8, "--ranks", 3], "a step of 8 rows given (--batch), and 3 ranks; expected a multiple of 3"),
    ("finetune", ["--length", 18, "--ranks", 2, "--context-ranks", 2], "sequences of 18 tokens; expected a multiple of 4"),
    ("calibrate", ["--ranks", 2], "all ranks share each window"),
])
def test_what_ranks_cannot_do_with_a_model_is_said_before_they_start(tmp_path, text, verb, more, words):
    # Ranks would look for the model first.
    done = run(verb, tmp_path / "no-model", "--text", text, "--out", tmp_path / "out", *more, *QUICK, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count(words) == 1 and "no-model" not in done.stderr, done.stderr


def test_the_environment_and_the_option_must_agree(tmp_path, text):
    done = run(*command(text, tmp_path / "run", "--ranks", 4),
               env={**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"})
    assert done.returncode == 2
    assert "--ranks 4 given, and the environment says that 2 ranks were started" in done.stderr


PLAN = ["train", "--plan", "--model.vocabulary", 32000, "--layers", 4, "--width", 256, "--heads", 4, "--context", 128,
        "--batch", 64, "--micro-batch", 4]


def plan(*more):
    return result(*PLAN, *more)


def test_a_plan_starts_nothing_and_says_what_each_sharding_needs(tmp_path):
    done = run(*PLAN, "--ranks", 8, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
    assert "recommended: --shard" in done.stdout
    one, many = plan(), plan("--ranks", 8)
    assert many["parameters"] == one["parameters"]
    of = {(entry["shard"], entry["recompute"]): entry for entry in many["plans"]}
    assert len(of) == 8
    kept = [sum(of[shard, False]["memory"][name] for name in ("weights", "gradients", "optimizer"))
            for shard in ("none", "optimizer", "gradients", "all")]
    assert kept == sorted(kept, reverse=True) and len(set(kept)) == 4
    for entry in of.values():
        assert entry["memory"]["total"] == pytest.approx(sum(entry["memory"][name] for name in entry["memory"] if name != "total"))
    kept = of["all", True]["memory"]
    assert kept["weights"] == pytest.approx(4 * many["parameters"] / 8, rel=0.01)
    assert kept["optimizer"] == pytest.approx(2 * kept["weights"], rel=0.01)


def test_a_plan_names_what_bounds_a_step():
    assert plan("--ranks", 8, "--plan-link", 1e-3)["plans"][0]["bound"] == "link"
    assert plan("--ranks", 8, "--plan-flops", 1e-3)["plans"][0]["bound"] == "compute"
    full = plan("--ranks", 8, "--plan-memory", 1e-3)
    assert {entry["bound"] for entry in full["plans"]} == {"memory"} and full["recommended"] is None
    assert "nothing fits into" in run(*PLAN, "--ranks", 8, "--plan-memory", 0.001).stdout


@pytest.mark.parametrize("more, words", [
    (["--ranks", 3], "a step of 64 rows given (--batch), and 3 ranks; expected a multiple of 3"),
    (["--model.vocabulary", 0], "--plan reads no data; give the number of tokens"),
    (["--plan-memory", 0], "plan-memory"),
])
def test_what_cannot_be_planned_is_said(more, words):
    done = run(*PLAN, *more)
    assert done.returncode == 2 and words in done.stderr
