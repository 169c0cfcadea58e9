"""A dry run of changes, in words: the moves they would cause, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meander.coordinator.change_reader import Changes
from meander.coordinator.dry_run import try_events

if TYPE_CHECKING:
    from meander.coordinator.core.core import Core


def try_changes(core: Core, changes: Changes) -> dict[str, Any]:
    """Moves, with their causes, and fragments that would change."""
    read_model = core.publisher.read_model
    trial = try_events(core.loop, changes.events)
    report, change, name = trial.report, trial.change, trial.catalog.topology.name
    moves = []
    for move in report.moves:
        queries = read_model.queries_of(move.operator)
        moves.append(
            {
                "operator": int(move.operator),
                "query": queries[0] if queries else None,
                "queries": queries,
                "from": None if move.source is None else name(move.source),
                "to": None if move.target is None else name(move.target),
                "cause": move.cause,
            }
        )
    return {
        "batch": None,
        "moves": moves,
        "fragments": len(change.fragments),
        "rerouted": len(report.rerouted),
        "reroutes": report.reroutes,
        "unplaced": {str(o): reason for o, reason in report.unplaced.items()},
    }
