"""Calibration by ranks that share each window: what one rank finds."""

import json
import os
import signal
import subprocess

import pytest
from program import LONG, PATIENCE, PROGRAM, result, run, wait_until
from ranks_test import QUICK, ranks_below, text, train, verbs  # noqa: F401

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is missing: run make build")


def assert_same_numbers(found, expected, within):
    """The same document, but for the last digits of its numbers."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for name in expected:
            assert_same_numbers(found[name], expected[name], within)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected):
            assert_same_numbers(mine, theirs, within)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=within, abs=within)
    else:
        assert found == expected


CALIBRATE = ["--held-out", 0.2, "--tokens", 1000, "--step-tokens", 128, "--eval-lengths", "16,30", "--eval-tokens", 300,
             "--passkey-cases", 0, "--device", "cpu", "--threads", 1, *QUICK]


@pytest.mark.parametrize("more", [["--context", 64, "--length", 30, "--learn", "head,value,norm,rope"],
                                  ["--context", 64, "--spread", 32, "--echo", 0.2, "--echo-length", 8, "--learn", "slope,norm", "--controls", "norm"]]
                         if LONG else [["--context", 64, "--spread", 30, "--spread-parts", 2, "--learn", "head,value,norm,rope"]])
def test_ranks_that_share_windows_calibrate_as_one_does(tmp_path, text, more):  # noqa: F811
    train(text, tmp_path / "model", "--steps", 5, "--temperature", "softmax")
    found = [result("calibrate", tmp_path / "model", "--text", text, *CALIBRATE, *more, "--out", tmp_path / f"of-{ranks}",
                    "--ranks", ranks, "--context-ranks", ranks) for ranks in (1, 2)]
    for one in found:
        del one["seconds"], one["out"]
    assert_same_numbers(found[1], found[0], 1e-5)
    before, after = (found[0]["measures"][name]["perplexity"]["16"]["loss"] for name in ("before", "after"))
    assert abs(after - before) > 1e-3  # it learned something
    done = run("export", tmp_path / "of-2", "--out", tmp_path / "exported")
    assert done.returncode == 0, done.stderr


def test_ranks_share_the_text_of_a_passkey(tmp_path, text):  # noqa: F811
    train(text, tmp_path / "model", "--steps", 5, "--context", 64, "--temperature", "softmax")
    options = ["--tokens", 600, "--length", 64, "--eval-lengths", 520, "--passkey-cases", 2, "--eval-tokens", 600, "--held-out", 0.2]
    found = []
    for ranks in (1, 2):
        done = run("calibrate", tmp_path / "model", "--text", text, *options, "--out", tmp_path / f"of-{ranks}", "--device", "cpu", "--threads", 1,
                   "--ranks", ranks, "--context-ranks", ranks, *QUICK)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("tokens to learn from") == 1
        found.append(json.loads((tmp_path / f"of-{ranks}" / "calibration.json").read_text())["measures"])
    assert found[0]["before"]["passkey"] is not None
    assert_same_numbers(found[1], found[0], 1e-5)


def test_an_interrupted_calibration_of_ranks_goes_on(tmp_path, text):  # noqa: F811
    train(text, tmp_path / "model", "--steps", 5, "--temperature", "softmax")
    command = ["calibrate", tmp_path / "model", "--text", text, *CALIBRATE, "--tokens", 12000, "--context", 64, "--length", 32]
    shared = ["--ranks", 2, "--context-ranks", 2]
    out = tmp_path / "parts"
    process = subprocess.Popen([PROGRAM, *map(str, [*command, *shared, "--out", out])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: verbs.logged_lines(out) >= 5, process)
    os.kill(ranks_below(process)[1], signal.SIGTERM)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert errors.count("tempera calibrate --config") == 1
    again = result(*command, *shared, "--out", out)
    whole = result(*command, "--out", tmp_path / "whole")
    for one in (again, whole):
        del one["seconds"], one["out"]
    assert_same_numbers(again, whole, 1e-5)
