"""tools/matrix: what its legs run, and that a leg which did not pass is never printed as one that did."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "tools" / "matrix"


@pytest.fixture
def matrix(monkeypatch):
    loader = importlib.machinery.SourceFileLoader("matrix_script", str(SCRIPT))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module


def leg(matrix, name):
    return next(leg for leg in matrix.LEGS if leg.name == name)


LOG = """release: tests   ok  12 passed
fact system Debian 13.2
fact compiler g++ 14.2.0
fact cmake 3.31.6
fact python 3.13.5
fact helpers ccache, mold
"""


@pytest.mark.parametrize("last, ok, result, passed", [
    ("1500 passed, 0 failed, 3 skipped\n", True, "passed", 1500),
    ("1499 passed, 1 failed\n", False, "FAILED", 1499),
    ("1499 passed, 1 failed\n", True, "FAILED", 1499),
    ("1500 passed, 0 failed\n", False, "FAILED", 1500),
    ("0 passed, 0 failed\n", True, "FAILED", 0),
    ("", True, "FAILED", 0),
])
def test_result_of_a_leg(matrix, last, ok, result, passed):
    row = matrix.result_of(leg(matrix, "debian13"), last + LOG, ok, 61.4)
    assert (row["result"], row["passed"], row["seconds"]) == (result, passed, 61)
    assert (row["system"], row["compiler"], row["cmake"]) == ("Debian 13.2", "g++ 14.2.0", "3.31.6")


def test_results_of_other_legs_stay(matrix, tmp_path):
    file = tmp_path / "results.json"
    old = [{"leg": "debian13", "result": "FAILED"}, {"leg": "debian12", "result": "passed"}]
    file.write_text(json.dumps(old))
    rows = matrix.merged([{"leg": "debian13", "result": "passed"}], file)
    assert rows == [{"leg": "debian12", "result": "passed"}, {"leg": "debian13", "result": "passed"}]
    assert matrix.merged(old[:1], None) == old[:1]


def test_what_a_leg_runs(matrix):
    assert "make demo\nmake test" in matrix.script_of(leg(matrix, "debian12"))
    plain = matrix.script_of(leg(matrix, "debian12-plain"))
    assert "build/.absent-packages" in plain and "make demo" not in plain
    assert "pip install -q 'cmake>=4'" in matrix.script_of(leg(matrix, "debian13-cmake4"))
    for each in matrix.LEGS:
        assert subprocess.run(["bash", "-n", "-c", matrix.script_of(each)], check=False).returncode == 0, each.name


def test_legs_by_name(matrix):
    listed = subprocess.run([SCRIPT, "--list"], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in listed.splitlines()] == [each.name for each in matrix.LEGS]
    assert len(matrix.LEGS) >= 10
    wrong = subprocess.run([SCRIPT, "debian13-clang"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "did you mean 'debian13-clang19'?" in wrong.stderr
