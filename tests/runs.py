"""Trainings that tests stop while they are under way."""

import contextlib
import os
import shutil
import signal
import sys

from program import PATIENCE, ROOT, wait_until

sys.path.append(str(ROOT / "tools"))
import crash_verbs as verbs  # noqa: E402

TRIES = 20


def runs_with_a_signal(begin, out, lines, number, whom):
    """Runs that were sent a signal after as many lines of their log. A machine may be so busy that a run is done before: then its
    folder is removed, and another one begins."""
    for _ in range(TRIES):
        process = begin()
        wait_until(lambda: verbs.logged_lines(out) >= lines, process)
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(whom(process), number)
        yield process
        shutil.rmtree(out)
    raise AssertionError(f"{TRIES} runs were done before they could be stopped")


def stop(begin, out, lines, number=signal.SIGTERM, whom=lambda process: process.pid):
    """Stops a run, or one of its processes; gives the run's process and messages."""
    for process in runs_with_a_signal(begin, out, lines, number, whom):
        errors = process.communicate(timeout=PATIENCE)[1]
        if process.returncode != 0:
            return process, errors


def held(begin, out, lines):
    """A run that stands still until it gets SIGCONT."""
    for process in runs_with_a_signal(begin, out, lines, signal.SIGSTOP, lambda process: process.pid):
        if process.poll() is None:
            return process
