"""A test bed that is told to end leaves nothing behind: no process, no namespace, no disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.testbed.disks import can_be_full
from lab.testbed.links import Can, capabilities

TIMEOUT_S = 120.0
BED = """
import json, signal, sys, time
from pathlib import Path
from lab.testbed import process_test_bed as bed, world
from lab.testbed.layout import layout
from lab.testbed.links import Can
from meander.lang.topology.reader import load

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have seen to it that this one does nothing
bed.COMMAND = (sys.executable, "-c", "import time; time.sleep(600)")
work = Path(sys.argv[1])
topology = world.write_world(work)
places = layout(load(topology).topology, {site: list(nodes) for site, nodes in world.SITES.items()})
with bed.process_test_bed(work / "bed", topology, places, Can(int(sys.argv[2])), disks=sys.argv[3] == "disks") as found:
    (work / "shown.new").write_text(json.dumps(found.shown()))
    (work / "shown.new").rename(work / "shown")
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_bed_that_gets_a_signal_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    can, disks = capabilities()[0], can_be_full()[0]
    command = [sys.executable, "-c", BED, str(tmp_path), str(can.value), "disks" if disks else "none"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + TIMEOUT_S
    while not (tmp_path / "shown").exists():
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shown = json.loads((tmp_path / "shown").read_text())
    hosts = shown["hosts"].values()
    assert all(is_running(host["process"]) for host in hosts)
    child.send_signal(number)
    errors = child.communicate(timeout=TIMEOUT_S)[1]
    assert child.returncode == (-number if number is signal.SIGINT else 128 + number), errors
    assert not any(is_running(host["process"]) for host in hosts)
    if Can.CUT in can:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert not any(host["namespace"] in listed for host in hosts)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
