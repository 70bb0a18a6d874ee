"""Where the tests find the program, its tools and the data, and how they call it."""

import json
import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TEMPERA_BUILD", ROOT / "build" / "release"))
PROGRAM = BUILD / "src" / "tempera" / "cli" / "tempera"
DATA = pathlib.Path(os.environ.get("TEMPERA_DATA", pathlib.Path.home() / ".cache" / "tempera-data"))
SMOLLM2 = pathlib.Path(os.environ.get("TEMPERA_SMOLLM2", DATA / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
LONG = os.environ.get("TEMPERA_LONG") == "1"
PATIENCE = 600  # seconds in which all that a test waits for happens, also on a busy machine


def few(count, cases):
    """As many of the cases, spread over them; all in the long tests. A start of the program is a quarter of a second."""
    return cases if LONG else cases[::-(-len(cases) // count)]


def tool(layer, name):
    return BUILD / "src" / "tempera" / layer / name


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)],
                          **{"capture_output": True, "text": True, "timeout": PATIENCE, "check": False, **options})


def result(*arguments):
    """The program's JSON."""
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def fails(status, words, *arguments):
    done = run(*arguments)
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def wait_until(reached, process=None):
    """Whether it came about: not where the process ended before."""
    deadline = time.monotonic() + PATIENCE
    while not (found := reached()) and time.monotonic() < deadline and (process is None or process.poll() is None):
        time.sleep(0.003)
    return found


def is_running(number):
    """Of a process: not where its parent has yet to ask how it ended."""
    try:
        return pathlib.Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
