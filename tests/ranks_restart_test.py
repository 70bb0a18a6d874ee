"""Ranks that torchrun starts again, on machines that come and go, and disks that take their time."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from program import LONG, PATIENCE, PROGRAM, wait_until
from ranks_test import MANY, command, free_port, ranks_below, text, timeless, train, verbs  # noqa: F401

pytestmark = [pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build"),
              pytest.mark.skipif(not LONG, reason="long runs, most of them waiting; dist_test has what they rest on: set TEMPERA_LONG=1")]

# torchrun takes seconds to start its ranks again.
KILLS = int(os.environ.get("TEMPERA_KILLS", "6"))

TORCHRUN = pathlib.Path(sys.executable).parent / "torchrun"


@pytest.fixture(scope="module")
def of_two(text, tmp_path_factory):  # noqa: F811
    return train(text, tmp_path_factory.mktemp("two") / "run", "--ranks", 2, "--save-every", 1, "--steps", MANY)


def workers_of(agent):
    """The ranks that a torchrun has started."""
    return [process for process in ranks_below(agent) if process != agent.pid]


def torchrun(agents, *arguments, **options):
    return subprocess.Popen([TORCHRUN, "--no-python", *map(str, agents), PROGRAM, *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def kill_under_torchrun(text, out, ranks, kills, draw):  # noqa: F811
    """Kills random ranks of a run until it is complete; gives how many."""
    more = ("--ranks", ranks, "--save-every", 1, "--steps", MANY)
    agent = torchrun(["--standalone", "--nproc-per-node", ranks, "--max-restarts", kills, "--monitor-interval", "0.05"],
                     *command(text, out, *more))
    done = 0
    while done < kills and agent.poll() is None:
        lines = verbs.logged_lines(out) + draw.randint(1, 8)
        wait_until(lambda: verbs.logged_lines(out) >= lines, agent)
        time.sleep(draw.uniform(0, 0.1))
        victims = workers_of(agent)
        if len(victims) != ranks:
            continue
        os.kill(draw.choice(victims), signal.SIGKILL)
        done += 1
        wait_until(lambda: not set(workers_of(agent)) & set(victims), agent)
    errors = agent.communicate(timeout=PATIENCE)[1]
    assert agent.returncode == 0, errors
    return done


def test_kills_under_torchrun_lose_nothing(tmp_path, text, of_two):  # noqa: F811
    draw = random.Random(1)
    killed = 0
    while killed < KILLS:
        out = tmp_path / f"run-{killed}"
        killed += kill_under_torchrun(text, out, 2, min(6, KILLS - killed), draw)
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        assert timeless(log) == timeless(of_two)


def start_node(port, text, out, own_stores):  # noqa: F811
    return torchrun(["--nnodes", 2, "--nproc-per-node", 1, "--max-restarts", 4, "--monitor-interval", "0.1", "--local-addr", "127.0.0.1",
                     "--rdzv-backend", "c10d", "--rdzv-id", "nodes", "--rdzv-endpoint", f"127.0.0.1:{port}",
                     "--rdzv-conf", "keep_alive_interval=1"],
                    *command(text, out, "--save-every", 1, "--steps", 200), "--rank-timeout", 60,
                    env={**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(int(own_stores))})


def wait_for_step(out, step, *agents):
    wait_until(lambda: verbs.last_step(out) >= step or any(agent.poll() is not None for agent in agents))
    assert verbs.last_step(out) >= step, [agent.poll() for agent in agents]


@pytest.mark.parametrize("lost", ["machine", "rank"])
def test_a_run_on_two_machines_outlives_one(tmp_path, text, lost):  # noqa: F811
    out = tmp_path / "run"
    # Where a rank alone is lost, torchrun keeps one store over all attempts.
    node = (free_port(), text, out, lost == "machine")
    first = start_node(*node)
    time.sleep(2)  # the one that is there first keeps the meeting point of the agents
    second = start_node(*node)
    try:
        wait_for_step(out, 10, first, second)
        victims = workers_of(second) + ([second.pid] if lost == "machine" else [])
        for process in victims:
            os.kill(process, signal.SIGKILL)
        if lost == "machine":
            second.communicate()
            second = start_node(*node)
        errors = [agent.communicate(timeout=PATIENCE)[1] for agent in (first, second)]
        assert [first.returncode, second.returncode] == [0, 0], errors
        assert any("continuing the run in" in text for text in errors)
        steps = [json.loads(line)["step"] for line in (out / "log.jsonl").read_text().splitlines() if '"loss"' in line]
        assert steps == list(range(1, 201))
    finally:
        for agent in (first, second):
            for process in [*workers_of(agent), agent.pid] if agent.poll() is None else []:
                os.kill(process, signal.SIGKILL)


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wait_for(const char* what, const char* path) {
  const char *rank = getenv("RANK"), *slow = getenv("SLOW");
  if (!rank || *rank != '0' || !slow || strcmp(slow, what) != 0 || !strstr(path, "model.safetensors")) return;
  unsetenv("SLOW");
  sleep(9);
}
int fsync(int file) {
  char link[64], path[4096] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  (void)!readlink(link, path, sizeof path - 1);
  wait_for("fsync", path);
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
static int opened(const char* name, const char* path, int flags, mode_t mode) {
  wait_for("open", path);
  return ((int (*)(const char*, int, mode_t))dlsym(RTLD_NEXT, name))(path, flags, mode);
}
#define OPEN(name) int name(const char* path, int flags, ...) { \
  va_list rest; va_start(rest, flags); const mode_t mode = va_arg(rest, mode_t); va_end(rest); \
  return opened(#name, path, flags, mode); }
OPEN(open)
OPEN(open64)
"""


def test_a_slow_disk_is_waited_for(tmp_path, text):  # noqa: F811
    (tmp_path / "slow.c").write_text(SLOW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "slow.so", tmp_path / "slow.c", "-ldl"], check=True)
    for slow in ("fsync", "open"):  # to save, and to go on
        begin = time.monotonic()
        train(text, tmp_path / "run", "--ranks", 2, "--steps", 6, "--rank-timeout", 3,
              env={**os.environ, "LD_PRELOAD": str(tmp_path / "slow.so"), "SLOW": slow})
        assert time.monotonic() - begin > 9
