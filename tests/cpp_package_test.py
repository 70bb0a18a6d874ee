"""The installed C++ package: two projects outside the tree find it, headers stand by themselves, and only our own symbols show."""

import pathlib
import re
import shutil
import subprocess

import pytest
from program import BUILD, LONG, PATIENCE, ROOT

pytestmark = pytest.mark.skipif(not (BUILD / "libtempera_kernels.so").exists(), reason="the libraries are missing: run make build")
KERNEL_HEADERS = ["base/parallel.h", "base/version.h", *(f"kernels/{name}.h" for name in ("attention", "fused", "mask", "reference/attention", "validate"))]


def call(*command, **options):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=PATIENCE, **options)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prefix")
    done = call("cmake", "--install", BUILD, "--prefix", folder, "--component", "development")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(ROOT / "examples", folder / "examples")
    return folder / "examples"


def configured(project, prefix, *options):
    return call("cmake", "-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release",
                *options)


def built(project, prefix, program):
    done = configured(project, prefix)
    assert done.returncode == 0, done.stderr
    done = call("cmake", "--build", project / "build")
    assert done.returncode == 0, done.stdout + done.stderr
    return call(project / "build" / program)


def headers(prefix):
    return sorted(str(path.relative_to(prefix / "include")) for path in (prefix / "include").rglob("*.h"))


def test_a_project_without_torch(prefix, outside):
    done = built(outside / "kernels-package", prefix, "scaled_attention")
    assert done.returncode == 0 and "gradient of g of head 0" in done.stdout, done.stderr
    needed = call("readelf", "-d", outside / "kernels-package" / "build" / "scaled_attention").stdout
    assert "libtempera_kernels.so" in needed and "torch" not in needed


@pytest.mark.skipif(not LONG, reason="compiling against libtorch takes a minute")
def test_a_method_from_outside_is_trained(prefix, outside):
    done = built(outside / "method-package", prefix, "own_method")
    assert done.returncode == 0 and re.match(r"loss \S+ -> \S+, the temperature moved by", done.stdout), done.stderr


def test_what_is_missing_is_named(prefix, outside, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    lists = project / "CMakeLists.txt"
    lists.write_text("cmake_minimum_required(VERSION 3.25)\nproject(x LANGUAGES CXX)\nfind_package(tempera REQUIRED COMPONENTS kernel)\n")
    assert "tempera has no component 'kernel'" in " ".join(configured(project, prefix).stderr.split())
    lists.write_text(lists.read_text().replace("kernel)", "ops)"))
    assert "set TEMPERA_TORCH to the folder" in " ".join(configured(project, prefix, f"-DTEMPERA_TORCH={tmp_path}").stderr.split())
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cpu.so").touch()
    (tmp_path / "version.py").write_text("__version__ = '1.9.0'\n")
    assert "was built with torch 2." in " ".join(configured(project, prefix, f"-DTEMPERA_TORCH={tmp_path}").stderr.split())


def test_only_what_is_public_is_installed(prefix):
    found = headers(prefix)
    assert {f"tempera/{name}" for name in KERNEL_HEADERS} < set(found) and "tempera/nn/model.h" in found
    for name in found:
        for included in re.findall(r'#include "(tempera/[^"]+)"', (prefix / "include" / name).read_text()):
            assert included in found, f"{name} includes {included}, which is not installed"
    assert not any(word in name for name in found for word in ("test", "-inl", "cuda"))


WARNINGS = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def compiles(prefix, headers, *options):
    done = call("c++", *WARNINGS, "-fsyntax-only", f"-I{prefix / 'include'}", *options, "-x", "c++", "-",
                input="".join(f'#include "{header}"\n' for header in headers))
    assert done.returncode == 0, (headers, done.stderr)


@pytest.mark.parametrize("header", KERNEL_HEADERS)
def test_a_header_of_the_kernels_compiles_by_itself(prefix, header):
    compiles(prefix, [f"tempera/{header}"])


# Those of libtorch that our headers include: each has the ones behind it.
TORCH_HEADERS = ["torch/nn/module.h", "torch/types.h", "ATen/core/Tensor.h"]


def included(prefix, header, seen):
    """All that comes with a header of ours."""
    for name in re.findall(r'#include [<"]([^>"]+)', (prefix / "include" / header).read_text()):
        if name not in seen:
            seen.add(name)
            if name.startswith("tempera/"):
                included(prefix, name, seen)
    return seen


def other_headers(prefix, base):
    """Those outside the kernels that need this header of libtorch, and none with more in it."""
    others = [name for name in headers(prefix) if name.removeprefix("tempera/") not in KERNEL_HEADERS]
    return [name for name in others if next((known for known in TORCH_HEADERS if known in included(prefix, name, set())), None) == base]


def test_a_header_without_torch_compiles_by_itself(prefix):
    for header in other_headers(prefix, None):
        compiles(prefix, [header])


@pytest.mark.skipif(not LONG, reason="compiling against libtorch takes a minute")
@pytest.mark.parametrize("base", TORCH_HEADERS)
def test_a_header_with_torch_compiles_by_itself(prefix, base, tmp_path):
    """Behind what it includes of libtorch, precompiled: each of them alone would take ten seconds."""
    config = (BUILD / "tempera-config.cmake").read_text()
    torch = pathlib.Path(re.search(r'set\(TEMPERA_TORCH "([^"]+)"', config)[1])
    options = [f"-I{prefix / 'include'}", "-isystem", torch / "include", "-isystem", torch / "include/torch/csrc/api/include"]
    (tmp_path / "base.h").write_text(f"#include <{base}>\n")
    done = call("c++", *WARNINGS, *options, "-x", "c++-header", tmp_path / "base.h", "-o", tmp_path / "base.h.gch")
    assert done.returncode == 0, done.stderr
    found = other_headers(prefix, base)
    assert found
    for header in found:
        compiles(prefix, ["base.h", header], f"-I{tmp_path}", "-Winvalid-pch", *options)


@pytest.mark.parametrize("library", ["libtempera_kernels.so", "libtempera_torch.so"])
def test_a_library_shows_no_symbols_but_ours(prefix, library):
    lines = call("nm", "-DC", "--defined-only", prefix / "lib" / library).stdout.splitlines()
    assert len(lines) > 10
    assert [line for line in lines if "tempera::" not in line] == []
