"""A coordinator that was restored from a backup, and a site that has gone on since: real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from meander.cli.main import app
from meander.cli.up import STEPPED_DOWN
from tests.site.fleet import (
    ROWS,
    SECRETS,
    Process,
    counts_of,
    counts_query,
    end_rows,
    expected_counts,
    fleet,
    free_port,
    until,
    with_certificate,
    write_rows,
    write_world,
)

OPEN = range(5, 8)
"""The windows of what was taken in since the backup: the site has that, and the restored coordinator reads it again."""


@pytest.mark.slow
def test_a_site_goes_on_with_a_restored_coordinator_and_refuses_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = write_world(tmp_path, ["noise"])
    monkeypatch.setenv("MEANDER_CA", str(tmp_path / SECRETS / "ca.pem"))
    with fleet(tmp_path, topology, {"edge": ["e0", "e1", "s0", "s1"]}) as found:
        found.submit(counts_query("noise", "out"), "counts")
        write_rows(tmp_path, "noise", 0, 100)
        found.move("counts", "window aggregate", "e0")
        found.wait_moved("counts", "window aggregate", "e0")
        write_rows(tmp_path, "noise", 100, 250)
        found.wait_for("home", "counts", "out", 25)
        archive = tmp_path / "backup.tar"
        answer = CliRunner().invoke(app, ["backup", "-d", str(found.home.directory), "-o", str(archive)])
        assert answer.exit_code == 0, answer.output

        found.submit("SELECT id FROM noise WHERE value > 8 INTO side", "late")  # of which the backup knows nothing
        until(lambda: (found.ask("/queries/late") or {"status": "waiting"})["status"] != "waiting", found.logs)
        write_rows(tmp_path, "noise", 250, 400)
        found.wait_for("home", "counts", "out", 60)
        found.coordinator.kill()
        before = found.results("home", "counts", "out")

        restored = tmp_path / "again"
        assert CliRunner().invoke(app, ["restore", str(archive), "-d", str(restored)]).exit_code == 0
        command = ["up", "--dir", str(restored), "--port", str(found.port), *with_certificate(tmp_path, "second")]
        again = Process(tmp_path / "second", command)
        old = Process(tmp_path / "third", [])
        try:
            again.start()
            former, found.acts = found.home.directory, "again"
            found.wait_here("edge")
            write_rows(tmp_path, "noise", 400, ROWS)
            end_rows(tmp_path, "noise")

            def results() -> list[tuple[int, int, int]]:
                found = {row for row in before if row[0] < OPEN.start}
                return sorted(found | {row for row in again_rows() if row[0] not in OPEN})

            def again_rows() -> list[tuple[int, int, int]]:
                return counts_of(restored / "results" / "counts-out.jsonl")

            expected = [row for row in expected_counts() if row[0] not in OPEN]
            until(lambda: len(results()) >= len(expected), lambda: again.log[-3000:])
            assert results() == expected
            assert {window for window, *_ in (*before, *again_rows())} >= set(OPEN)  # counted once or twice, not lost

            def told() -> bool:
                problems = (found.ask("/health") or {"problems": ()})["problems"]
                return any("is not what the backup" in p and "meander site forget edge" in p for p in problems)

            until(told, lambda: str(found.ask("/health")))

            second = ["up", "--dir", str(former), "--port", str(free_port()), *with_certificate(tmp_path, "third")]
            old = Process(tmp_path / "third", second)
            old.start()
            assert old.wait() == STEPPED_DOWN, old.log[-3000:]
            assert "has taken over from this one" in old.log
            found.wait_here("edge")
        finally:
            again.end()
            old.end()
