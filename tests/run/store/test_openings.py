"""Openings of a store: a process that ended lost nothing, a machine that was started again may have."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from meander.model.ids import ChannelId
from meander.run.channels.base import ChannelSpec
from meander.run.store import openings
from meander.run.store.commit import Commit
from meander.run.store.store import Store

LOG = ChannelId(1)
SPEC = ChannelSpec(LOG, pa.schema([("n", pa.int64())]))


def incarnations(path: Path) -> int:
    """How many a log has had that the store was opened with."""
    store = Store.open(path)
    try:
        return len(store.exchange.lineage(LOG))
    finally:
        store.close()


def test_a_log_goes_on_in_the_same_incarnation_when_a_process_ended(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.commit(Commit(add=(SPEC,)))
    store.close()
    assert [incarnations(tmp_path) for _ in range(3)] == [0, 0, 0]


def test_a_log_begins_a_new_incarnation_after_a_start_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(tmp_path)
    store.commit(Commit(add=(SPEC,)))
    store.close()
    boot = tmp_path / "another boot"
    boot.write_text("0b0a")
    monkeypatch.setattr(openings, "_BOOT_ID", boot)
    assert [incarnations(tmp_path) for _ in range(2)] == [1, 1]


def test_a_log_begins_a_new_incarnation_in_a_directory_that_was_put_back(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    store.commit(Commit(add=(SPEC,)))
    store.close()
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    assert incarnations(tmp_path / "copy") == 1
    assert incarnations(tmp_path / "store") == 0
