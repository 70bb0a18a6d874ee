"""scripts/test must count what failed, however it failed: its last line is what people trust."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import xml.etree.ElementTree as xml

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "scripts" / "test"


@pytest.fixture
def script(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("test_script", str(SCRIPT))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    module.ROOT = tmp_path
    module.LOGS = tmp_path / "logs"
    return module


PASSED = "[==========] 12 tests ran.\n[  PASSED  ] 12 tests.\n"
SOME_SKIPPED = "[  PASSED  ] 3 tests.\n[  SKIPPED ] 2 tests, listed below:\n[  SKIPPED ] A.B\n"
ALL_SKIPPED = "[  PASSED  ] 0 tests.\n[  SKIPPED ] 2 tests, listed below:\n"
SOME_FAILED = "[  PASSED  ] 4 tests.\n[  FAILED  ] 2 tests, listed below:\n[  FAILED  ] A.B\n\n 2 FAILED TESTS\n"
ONE_PASSED = "[  PASSED  ] 1 test.\n"
CRASHED = "[ RUN      ] A.B\nSegmentation fault\n"


@pytest.mark.parametrize("text, ok, expected", [
    (PASSED, True, (12, 0, 0)),
    (ONE_PASSED, True, (1, 0, 0)),
    (SOME_SKIPPED, True, (3, 0, 2)),
    (ALL_SKIPPED, True, (0, 0, 2)),
    (SOME_FAILED, False, (4, 2, 0)),
    (CRASHED, False, (0, 1, 0)),
    (PASSED, False, (12, 1, 0)),  # all passed, and then the program failed, as with a leak
    ("no GoogleTest", True, (1, 0, 0)),
    ("no GoogleTest", False, (0, 1, 0)),
])
def test_cases_of_a_program(script, text, ok, expected):
    assert script.count_google_tests(text, ok) == expected


def entry(status, text="", child=None):
    element = xml.Element("testcase", status=status)
    xml.SubElement(element, "system-out").text = text
    if child:
        xml.SubElement(element, child)
    return element


def test_entries_of_ctest(script):
    assert script.ctest_entry(entry("run", PASSED)) == (12, 0, 0)
    assert script.ctest_entry(entry("fail", SOME_FAILED, "failure")) == (4, 2, 0)
    assert script.ctest_entry(entry("notrun", "", "skipped")) == (0, 0, 1)
    assert script.ctest_entry(entry("notrun")) == (0, 1, 0)


def test_a_stage_that_fails_without_a_report_is_a_failure(script, capsys):
    count = script.junit_counter(script.LOGS / "none.xml", script.ctest_entry)
    assert not script.run("stage", ["sh", "-c", "echo what went wrong; exit 3"], count=count)
    assert script.counts.failed == 1
    assert "what went wrong" in capsys.readouterr().out


def test_a_build_that_fails_is_a_failure(script):
    assert not script.run("stage", ["false"])
    assert (script.counts.passed, script.counts.failed) == (0, 1)


def test_a_build_that_succeeds_is_no_test(script):
    assert script.run("stage", ["true"])
    assert (script.counts.passed, script.counts.failed) == (0, 0)
