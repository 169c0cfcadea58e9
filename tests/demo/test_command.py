"""`meander demo`: what it refuses before Spark starts, and what its summary says."""

import json
import socket

import pytest
from typer.testing import CliRunner

from meander.cli.demo import print_summary, summary_of
from meander.cli.main import app
from meander.demo.demo import COUNTED, DemoReport
from meander.model.errors import InputError
from meander.run.delivery.latency import LatencyHistogram
from meander.run.oracle.comparison import Comparison


@pytest.mark.parametrize("arguments", [["--for", "soon"], ["--for", "60s", "--for", "-1s"]])
def test_a_time_that_is_none_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert isinstance(result.exception, InputError)
    assert "duration" in str(result.exception)


def test_a_port_that_is_taken_is_refused_before_spark_starts() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["demo", "--port", str(port), "--for", "1s"])
    assert isinstance(result.exception, InputError)
    assert f"port {port}" in str(result.exception)


def _report(lost: int = 0) -> DemoReport:
    total = dict.fromkeys(COUNTED, 3) | {"results": {"q > alerts": 5}, "problems": [], "tuples_in": 9, "tuples_out": 5}
    report = DemoReport(first_result_s=12.34, handovers=4, incidents=["exchange-1 fails"], summary=total, drained=True)
    report.latency = {"before": LatencyHistogram().percentiles(), "during": LatencyHistogram().percentiles()}
    report.links_ms["before"] += [30, 12]
    report.checks = {"q > alerts": Comparison(5, lost, 0, "a row" if lost else None)}
    return report


def test_the_summary_is_plain_json_and_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summary_of(_report())
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert (summary["lost"], summary["double"], summary["first_result_s"]) == (0, 0, 12.3)
    assert summary["emulated_links_ms"] == {"before": {"least": 12, "most": 30}}
    print_summary(summary)
    printed = capsys.readouterr().out
    assert "lost 0, double 0" in printed
    assert "4 trains changed base stations" in printed


def test_a_lost_row_is_shown_and_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    report = _report(lost=1)
    assert not report.sound
    print_summary(summary_of(report))
    printed = capsys.readouterr().out
    assert "lost 1" in printed
    assert "a row" in printed
