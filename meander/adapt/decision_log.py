"""The decision log: one JSON object a line, and the same in words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meander.adapt.decisions import Decision, DecisionAction
from meander.model.errors import InputError

NEEDED = ("at_ms", "query", "trigger", "action", "mechanism", "reason")


def entry(decision: Decision) -> dict[str, Any]:
    """A decision as plain data; empty fields are left out."""
    moves = {} if decision.transition is None else {"moves": decision.transition.moves}
    optional = {
        "target": decision.target,
        "exploring": decision.exploring,
        "dry_run": decision.dry_run,
        "readings": dict(decision.readings),
        "expected": dict(decision.expected),
        "forecasts": {name: dict(values) for name, values in decision.forecasts.items()},
        "predicted": dict(decision.predicted),
        "took": dict(decision.took),
    }
    return {
        "at_ms": decision.at_ms,
        "query": str(decision.query),
        "trigger": decision.trigger.value,
        "action": decision.action.value,
        "mechanism": decision.mechanism,
        "reason": decision.reason,
        **{key: value for key, value in optional.items() if value},
        **moves,
    }


def append(path: Path, decisions: Iterable[Decision]) -> None:
    """Adds decisions to a log file."""
    with path.open("a", encoding="utf-8") as file:
        for decision in decisions:
            file.write(json.dumps(entry(decision), ensure_ascii=False) + "\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log file, checked."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise InputError(f"the log cannot be read: {error.strerror}", str(path)) from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or any(key not in found for key in NEEDED):
            raise InputError(
                f"this is no entry of a decision log; it needs {', '.join(NEEDED)}", f"{path}, line {number}"
            )
        yield found


def told(found: Mapping[str, Any], *, details: bool = False) -> str:
    """An entry in words; with details, the numbers that led to it."""
    when = datetime.fromtimestamp(found["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    what = f"{found['action']} {found['mechanism']}"
    if found.get("target") and found["action"] in (
        DecisionAction.SWITCH.value,
        DecisionAction.ARRIVED.value,
        DecisionAction.FAILED.value,
    ):
        what = f"{found['action']} {found['mechanism']} -> {found['target']}"
    elif found["action"] == DecisionAction.QUARANTINE.value:
        what = f"{found['action']} {found.get('target', '')}"
    marks = "".join(
        f" [{mark}]" for key, mark in (("exploring", "trying out"), ("dry_run", "dry run")) if found.get(key)
    )
    before = found.get("predicted") if found["action"] == DecisionAction.SWITCH.value else None
    ahead = (
        f"; predicted: {before['seconds']:.2g} s, {before['bytes']:,} bytes by {before['protocol']}" if before else ""
    )
    lines = [f"{when}  {found['query']}  {found['trigger']}: {what}{marks}; {found['reason']}{ahead}"]
    if details:
        lines += [f"    predicted {_transition(found['predicted'])}"] if found.get("predicted") else []
        lines += [f"    took {_transition(found['took'])}"] if found.get("took") else []
        lines += [f"    read {_numbers(found['readings'])}"] if found.get("readings") else []
        shares = sorted(found.get("expected", {}).items(), key=lambda pair: -pair[1])
        lines += [f"    {name} is expected to meet {share:.0%}{_forecast(found, name)}" for name, share in shares]
    return "\n".join(lines)


def _transition(found: Mapping[str, Any]) -> str:
    """The figures of a transition, with how each operator moved."""
    ways = Counter(o["way"] for o in found.get("operators", ()))
    parts = [f"{found['seconds']:.3g} s, {found['bytes']:,} bytes, {found['overlap_s']:.3g} s at both places"]
    parts += [f"{part} {seconds:.3g} s" for part, seconds in found.get("parts_s", {}).items() if seconds]
    parts += [f"{count} {way}" for way, count in ways.items()]
    return ", ".join(parts)


def _forecast(found: Mapping[str, Any], name: str) -> str:
    values = found.get("forecasts", {}).get(name)
    return f", forecast {_numbers(values)}" if values else ""


def _numbers(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
