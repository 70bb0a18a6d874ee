"""What a wheel says of itself, and its command; tools/wheel-test installs it on bare systems."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from program import BUILD, PROGRAM, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = re.search(r"project\(tempera VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def installed(folder, torch):
    """A package as the wheel lays it out, with a program that says how it was called, and a torch of that version."""
    package = folder / "tempera"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('the command imports nothing of this')")
    (package / "torch.txt").write_text("2.13.0\n")
    (package / "bin" / "tempera").write_text('#!/bin/sh\necho "called with $*"\n')
    (package / "bin" / "tempera").chmod(0o755)
    if torch:
        (folder / f"torch-{torch}.dist-info").mkdir()
        (folder / f"torch-{torch}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    code = (f"import sys, runpy; sys.path[:] = [{str(folder)!r}] + [p for p in sys.path if 'site-packages' not in p]; "
            f"runpy.run_path({str(ROOT / 'python' / 'command.py')!r}, run_name='__main__')")
    return subprocess.run([sys.executable, "-I", "-c", code, "methods", "--json"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("torch", ["2.13.0", "2.13.1+cu130"])
def test_the_command_runs_the_program(tmp_path, torch):
    done = installed(tmp_path, torch)
    assert (done.returncode, done.stdout) == (0, "called with methods --json\n"), done.stderr


@pytest.mark.parametrize("torch", ["2.12.0", "2.14.0+cpu", ""])
def test_another_torch_is_one_clear_sentence(tmp_path, torch):
    done = installed(tmp_path, torch)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (f"tempera: this build runs with torch 2.13.0, and here is {torch or 'none'}: "
                           "pip install 'torch==2.13.0'\n")


def test_the_package_refuses_another_torch(tmp_path):
    source = ROOT / "python" / "tempera"
    package = tmp_path / "tempera"
    package.mkdir()
    for file in source.glob("*.py"):
        (package / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (package / "torch.txt").write_text("1.0.0\n")
    libraries = sorted(BUILD.glob("**/libtempera_torch.so"))
    if not libraries:
        pytest.skip("libtempera_torch.so is missing: run make build")
    done = subprocess.run([sys.executable, "-c", "import tempera"], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(tmp_path), "TEMPERA_LIBRARY": str(libraries[0])})
    assert "tempera: this build runs with torch 1.0.0, and here is" in done.stderr.splitlines()[-1]


def test_the_version_is_told_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    if PROGRAM.exists():
        assert subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout == f"tempera {VERSION}\n"


def test_the_torch_of_the_wheel_is_the_one_that_is_built_with():
    pinned = re.search(r"^torch==(\d+\.\d+)\.\d+$", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert PROJECT["project"]["dependencies"] == [f"torch=={pinned}.*"]
    assert any(line.startswith(f"torch=={pinned}.") for line in PROJECT["build-system"]["requires"])


def test_a_release_lists_what_is_in_the_wheel():
    listed = json.loads(subprocess.run([sys.executable, ROOT / "tools" / "release", "--sbom"], capture_output=True, text=True, check=True).stdout)
    assert listed["bomFormat"] == "CycloneDX" and listed["metadata"]["component"]["version"] == VERSION
    versions = {part["name"]: part["version"] for part in listed["components"]}
    assert {"libpng", "pcre2", "utf8proc", "highway", "torch"} <= versions.keys() and versions["torch"].startswith("2.")


def test_a_release_does_not_write_over_another(tmp_path):
    (tmp_path / "tempera-0.0.1.tar.gz").touch()
    done = subprocess.run([sys.executable, ROOT / "tools" / "release", "--out", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "has files of a release already" in done.stderr


def test_no_code_needs_more_than_the_baseline_but_where_it_is_chosen_at_run_time():
    """Instructions of AVX stand in no function but those that Highway compiled for a named target."""
    if not PROGRAM.exists() or os.uname().machine != "x86_64":
        pytest.skip("build/tempera is missing, or another machine")
    listing = subprocess.Popen(["objdump", "-d", "-C", "--no-show-raw-insn", PROGRAM], stdout=subprocess.PIPE, text=True)
    faults, function, seen = set(), "", 0
    for line in listing.stdout:
        if line.endswith(">:\n"):
            function = line
        elif "%ymm" in line or "%zmm" in line:
            seen += 1
            if "N_AVX" not in function:
                faults.add(function.split("<", 1)[-1].strip())
    listing.wait()
    assert seen > 1000
    assert not faults, sorted(faults)[:5]
