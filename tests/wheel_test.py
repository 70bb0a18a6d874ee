"""What a wheel says of itself, and its command; tools/wheel-test installs it on bare systems."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from program import BUILD, LONG, PROGRAM, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = re.search(r"project\(tempera VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def installed(folder, torch, program='echo "called with $*"', other=""):
    """A package as the wheel lays it out, with a program that says how it was called, and a torch of that version."""
    package = folder / "tempera"
    (package / "bin").mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise ImportError('the command imports nothing of this')")
    (package / "torch.txt").write_text("2.13.0\n")
    (package / "bin" / "tempera").write_text(f"#!/bin/sh\n{program}\n")
    (package / "bin" / "tempera").chmod(0o755)
    if torch:
        (folder / f"torch-{torch}.dist-info").mkdir(exist_ok=True)
        (folder / f"torch-{torch}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    code = (f"import sys, runpy; sys.path[:] = [{str(folder)!r}, {str(other)!r}] + [p for p in sys.path if 'site-packages' not in p]; "
            f"runpy.run_path({str(ROOT / 'python' / 'command.py')!r}, run_name='__main__')")
    return subprocess.run([sys.executable, "-I", "-c", code, "methods", "--json"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("torch", ["2.13.0", "2.13.1+cu130"])
def test_the_command_runs_the_program(tmp_path, torch):
    done = installed(tmp_path, torch)
    assert (done.returncode, done.stdout) == (0, "called with methods --json\n"), done.stderr


def test_the_command_finds_a_torch_of_another_environment(tmp_path):
    """As in a venv with --system-site-packages: the program's own path to libtorch leads nowhere."""
    other = tmp_path / "other"
    (other / "torch" / "lib").mkdir(parents=True)
    (other / "torch" / "__init__.py").write_text("raise ImportError('the command imports nothing of this')")
    done = installed(tmp_path / "here", "2.13.0", 'echo "libraries $LD_LIBRARY_PATH"', other)
    assert (done.returncode, done.stdout.split(":")[0].strip()) == (0, f"libraries {other / 'torch' / 'lib'}"), done.stderr
    (tmp_path / "here" / "torch" / "lib").mkdir(parents=True)
    assert str(other) not in installed(tmp_path / "here", "2.13.0", 'echo "libraries $LD_LIBRARY_PATH"', other).stdout


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


@pytest.fixture(scope="module")
def of_the_wheel(tmp_path_factory):
    """The program of the newest wheel in dist/, beside the torch of this Python, as pip lays them out."""
    wheels = sorted((ROOT / "dist").glob("tempera-*.whl"), key=lambda wheel: wheel.stat().st_mtime)
    if not wheels:
        pytest.skip("there is no wheel in dist/: run make wheel")
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheels[-1]) as wheel:
        wheel.extractall(folder)
    (folder / "torch").symlink_to(importlib.util.find_spec("torch").submodule_search_locations[0])
    program = folder / "tempera" / "bin" / "tempera"
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("program", ["build", "wheel"])
def test_it_runs_on_a_processor_without_avx2(program, request, tmp_path):
    if not LONG:
        pytest.skip("long: a processor is emulated")
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if not emulator or os.uname().machine != "x86_64":
        pytest.skip("qemu-x86_64 is missing (Debian: qemu-user), or another machine")
    program = request.getfixturevalue("of_the_wheel") if program == "wheel" else PROGRAM
    if not program.exists():
        pytest.skip("build/tempera is missing: run make build")

    def nehalem(*arguments):
        return subprocess.run([emulator, "-cpu", "Nehalem", program, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env={name: value for name, value in os.environ.items() if name != "TEMPERA_ISA"})

    said = nehalem("--version", "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout)["isas"] == ["baseline"]
    (tmp_path / "text.txt").write_text("red fox\nold map\n" * 60)
    done = nehalem("train", "--text", tmp_path / "text.txt", "--temperature", "ssa", "--out", tmp_path / "run", "--layers", 1, "--width", 32,
                   "--heads", 2, "--context", 16, "--batch", 2, "--steps", 2, "--device", "cpu", "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "last" / "model.safetensors").exists()
