"""Where the tests find the program, its tools and the data, and how they call it."""

import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TEMPERA_BUILD", ROOT / "build" / "release"))
PROGRAM = BUILD / "src" / "tempera" / "cli" / "tempera"
DATA = pathlib.Path(os.environ.get("TEMPERA_DATA", pathlib.Path.home() / ".cache" / "tempera-data"))
SMOLLM2 = pathlib.Path(os.environ.get("TEMPERA_SMOLLM2", DATA / "models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
LONG = os.environ.get("TEMPERA_LONG") == "1"


def few(count, cases):
    """As many of the cases, spread over them; all in the long tests. A start of the program is a quarter of a second."""
    return cases if LONG else cases[::-(-len(cases) // count)]


def tool(layer, name):
    return BUILD / "src" / "tempera" / layer / name


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)],
                          **{"capture_output": True, "text": True, "timeout": 300, "check": False, **options})


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
