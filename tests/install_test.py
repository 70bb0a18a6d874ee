"""An installed program needs nothing of the source tree: every verb runs where the tree is out of sight."""

import json
import os
import shlex
import shutil
import subprocess

import pytest
from program import BUILD, LONG, PATIENCE, PROGRAM, ROOT

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")

VERBS = ["compare", "study", "train", "finetune", "calibrate", "eval", "generate", "chat", "embed", "info", "data", "tokenize",
         "methods", "export", "bench", "completion", "man"]
TINY_TRAINING = ["--layers", "1", "--width", "16", "--heads", "2", "--mlp-size", "32", "--vocabulary", "64", "--length", "16", "--batch", "1",
                 "--seconds", "0", "--threads", "1"]

# An empty folder lies over the sources; the environment that has libtorch stays where it is.
HIDE = """set -e
kept=$(mktemp -d)
if [ ! -L .venv ]; then mount --bind .venv "$kept"; fi
mount -t tmpfs none "$PWD"
cd "$PWD"
if mountpoint -q "$kept"; then mkdir .venv; mount --bind "$kept" .venv; fi
cd "$1"
shift
exec "$@"
"""


def without_sources(folder):
    """A command's prefix; where the system lets nobody hide a folder, the sources stay and are only not the working folder."""
    unshare = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])
    allowed = shutil.which("unshare") and subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", folder], capture_output=True,
                                                         check=False).returncode == 0
    return [*unshare, "sh", "-c", HIDE, "sh", str(folder)] if allowed else []


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Runs the installed program in a folder of its own."""
    prefix, folder = tmp_path_factory.mktemp("prefix"), tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    hidden = without_sources(folder)

    def run(*arguments, **environment):
        command = [*hidden, str(prefix / "bin" / "tempera"), *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT if hidden else folder, env={**os.environ, **environment}, capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
    run.prefix, run.hidden, run.folder = prefix, hidden, folder
    return run


def test_the_sources_are_out_of_sight(installed):
    if not installed.hidden:
        pytest.skip("this system lets nobody hide a folder")
    script = f"ls {shlex.quote(str(ROOT))} && pwd"
    done = subprocess.run([*installed.hidden, "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(installed.folder)], done.stderr
    assert (ROOT / "README.md").exists()


def test_the_manual_is_installed(installed):
    assert ".TH tempera 1" in (installed.prefix / "share" / "man" / "man1" / "tempera.1").read_text()


def test_every_verb_is_there(installed):
    listed = installed("--help")
    assert listed.returncode == 0, listed.stderr
    for verb in VERBS:
        assert f"  {verb} " in listed.stdout
    for verb in VERBS if LONG else VERBS[::5]:
        done = installed(verb, "--help")
        assert done.returncode == 0 and verb in done.stdout, done.stderr


def test_compare(installed):
    done = installed("compare", "--steps", "2", "--seeds", "1", "--out", installed.folder / "run", "--threads", "1")
    assert done.returncode == 0, done.stderr
    assert "ssa" in done.stdout


def test_a_benchmark_finds_its_peer(installed):
    done = installed("bench", "train", *TINY_TRAINING, "--peers", "eager", "--json")
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in json.loads(done.stdout)["rows"]] == ["tempera", "torch eager"]


def test_a_benchmark_without_a_python_says_what_to_give(installed, tmp_path):
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = installed("bench", "train", *TINY_TRAINING, "--peers", "eager", "--python", python)
    assert done.returncode == 2, done.stderr
    assert "no Python that has the package torch" in done.stderr and "--python" in done.stderr
    done = installed("bench", "train", *TINY_TRAINING, "--peers", "eager", "--script", "nowhere.py")
    assert done.returncode == 2, done.stderr
    assert "'nowhere.py' is not there" in done.stderr


def test_libtorch_may_stand_beside_the_program(installed):
    """lib/ of the prefix comes before the place of the build."""
    (installed.prefix / "lib" / "libtorch_cpu.so").write_bytes(b"no library")
    try:
        done = installed("--help")
        assert done.returncode != 0 and str(installed.prefix) in done.stderr, done.stderr
    finally:
        (installed.prefix / "lib" / "libtorch_cpu.so").unlink()
