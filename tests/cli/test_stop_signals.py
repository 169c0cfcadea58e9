"""Signals end a start at once, and what runs when it is ready for that."""

from __future__ import annotations

import signal
import subprocess
import sys

CHILD = """
import sys, time
from meander.cli.stop_signals import Ending
ending = Ending()
try:
    if sys.argv[1] == "running":
        ending.ready()
    print("here", flush=True)
    for _ in range(6000):
        if ending.told.wait(0.1):
            print("told", flush=True)
            break
finally:
    print("cleared", flush=True)
"""


def said(when: str) -> tuple[list[str], int]:
    with subprocess.Popen([sys.executable, "-c", CHILD, when], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
        child.send_signal(signal.SIGTERM)
        return child.stdout.read().split(), child.wait(120)


def test_a_start_ends_at_once_and_clears_up() -> None:
    assert said("starting") == (["cleared"], 0)


def test_what_runs_is_only_told() -> None:
    assert said("running") == (["told", "cleared"], 0)
