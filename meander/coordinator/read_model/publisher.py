"""The publisher: decisions and findings of the core, written into the read model and sent to all watchers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from meander.adapt.decision_log import entry
from meander.adapt.decisions import Decision
from meander.adapt.per_query import PerQuery
from meander.coordinator.adaptation.adaptation import Adaptation
from meander.coordinator.condition.condition import (
    without_numbers,
)
from meander.coordinator.ledger.ledger import Ledger
from meander.coordinator.loop.loop import PlacementLoop
from meander.coordinator.read_model.change_history import ChangeHistory
from meander.coordinator.read_model.hub import Hub
from meander.coordinator.read_model.measuring import Measured
from meander.coordinator.read_model.query_status import QueryStatuses
from meander.coordinator.read_model.read_model import Pair, ReadModel
from meander.coordinator.read_model.traces import traces_from_environment
from meander.coordinator.sink_bindings import SinkBindings
from meander.model.ids import NodeId, OperatorId, QueryId
from meander.model.operators import Sink, Source
from meander.place.engine import BatchReport
from meander.reconfigure.outcome import ReconfigurationOutcome

Json = dict[str, Any]


@dataclass(slots=True)
class ServiceTotals:
    """The totals since the process began."""

    batches: int = 0
    events: int = 0
    refused: int = 0
    moves: int = 0
    reconfigurations: int = 0
    aborted: int = 0
    fragments: int = 0
    """Fragments that reconfigurations in effect touched."""
    state_bytes: int = 0
    decisions: int = 0


class Publisher:
    """Belongs to the core's thread."""

    def __init__(
        self,
        loop: PlacementLoop,
        adaptation: Adaptation,
        ledger: Ledger,
        sink_bindings: SinkBindings,
        hub: Hub,
    ) -> None:
        self.loop, self.adaptation, self.ledger = loop, adaptation, ledger
        self.read_model, self.sink_bindings, self.hub = ReadModel(loop, ledger.away_links), sink_bindings, hub
        self.change_history = ChangeHistory(loop, self._cause)
        self.totals = ServiceTotals()
        self.traces = traces_from_environment()
        self.texts: dict[str, str] = {}
        """The queries there are, as people wrote them."""
        self.mechanisms: dict[str, tuple[str, str]] = {}
        """The mechanism of each query and why it has it, as the ledger has them."""
        self.measured: Measured | None = None
        self._statuses = QueryStatuses(loop, adaptation, self.read_model, sink_bindings)

    # ---------------------------------------------------------------- placements

    def moves(self, report: BatchReport) -> list[Json]:
        """Placement changes of a batch, for people; remembers why operators are where they are."""
        topology = self.loop.catalog.topology
        found: list[Json] = []
        for move in report.moves:
            if move.target is not None:
                self.read_model.why[move.operator] = self._reason(move.operator, move.cause)
            queries = self.read_model.queries_of(move.operator)
            found.append(
                {
                    "operator": int(move.operator),
                    "query": queries[0] if queries else None,
                    "queries": queries,
                    "from": None if move.source is None else topology.name(move.source),
                    "to": None if move.target is None else topology.name(move.target),
                    "cause": move.cause,
                }
            )
        self.totals.moves += len(found)
        return found

    def by_hand(self, operators: Sequence[OperatorId]) -> None:
        """Marks operators that a user moved or released, also those that stay where they were."""
        for operator in operators:
            self.read_model.why[operator] = self._reason(operator, f"operator {operator} released")
        self.read_model.show_operators(operators)

    def _reason(self, operator: OperatorId, cause: str) -> str:
        record, chosen = self.loop.catalog.plan.operators.get(operator), self.loop.engine.mechanism
        if record is not None and isinstance(record.spec, Source):
            return "a source runs where its tuples are produced"
        if record is not None and isinstance(record.spec, Sink):
            return "a sink runs where its results are wanted"
        if record is not None and record.is_held:
            return "put there by hand"
        if record is not None and record.pin is not None:
            return f"nova chose it after: {cause}"
        name = chosen.by_operator.get(operator, chosen.fallback) if isinstance(chosen, PerQuery) else chosen.name
        return f"{name} chose it after: {cause}"

    def _cause(self, operators: Iterable[OperatorId]) -> str:
        """The cause of the change of some operators, in short."""
        wanted = set(operators)
        moves = (m for applied in self.loop.pending for m in applied.report.moves)
        causes = dict.fromkeys(m.cause for m in moves if m.operator in wanted)
        return "; ".join(list(causes)[:3]) or "a change that had to wait"

    def placed(self, moves: Sequence[Json], nodes: Iterable[NodeId], pairs: Iterable[Pair]) -> None:
        """Operators moved, nodes and links changed."""
        changed = self.read_model.show_topology(nodes, pairs)
        if changed is not None:
            self.hub.publish("topology", changed)
        operators = [OperatorId(m["operator"]) for m in moves]
        self.read_model.show_operators(operators)
        self.queries({q for o in operators for q in self.read_model.queries_of(o)})

    # ---------------------------------------------------------------- reconfigurations and decisions

    def reconfigurations(self, outcomes: Iterable[ReconfigurationOutcome], now_ms: int) -> None:
        """Publishes reconfigurations that began or ended since the last call."""
        ended, begun = self.change_history.ended(outcomes, now_ms), self.change_history.begun(now_ms)
        if not (ended or begun):
            return
        with self.ledger.transaction():
            for record in (*ended, *begun):
                self.ledger.save_reconfiguration(record)
        operators = {OperatorId(m["operator"]) for record in (*ended, *begun) for m in record["moves"]}
        for each in self.loop.deployer.under_way.values():
            operators |= each.change.operators
        for record in begun:
            if record["moves"]:
                self.hub.publish("moves", [self._move(m, record["number"]) for m in record["moves"]])
        for record in (*ended, *begun):
            self.hub.publish("reconfiguration", record)
        self._count(ended)
        self.read_model.show_operators(operators)
        self.read_model.show_deployment(self.measured)
        self.queries({q for o in operators for q in self.read_model.queries_of(o)})

    def _move(self, move: Json, number: int) -> Json:
        queries = self.read_model.queries_of(OperatorId(move["operator"]))
        return {**move, "query": queries[0] if queries else None, "queries": queries, "reconfiguration": number}

    def _count(self, ended: Iterable[Json]) -> None:
        for record in ended:
            self.totals.reconfigurations += 1
            self.totals.aborted += record["status"] == "aborted"
            self.totals.fragments += record["fragments"] if record["status"] == "committed" else 0
            self.totals.state_bytes += record["state_bytes"]
            self.traces.reconfiguration(record)

    def decisions(self, decided: Sequence[Decision]) -> None:
        """Publishes decisions of the adaptation loop."""
        if not decided:
            return
        records = [entry(d) for d in decided]
        records = [finite({**r, "from": r["mechanism"], "to": r.get("target")}) for r in records]
        mechanisms = dict(self.adaptation.mechanisms())
        with self.ledger.transaction():
            self.ledger.add_decisions(records)
            if mechanisms != self.mechanisms:
                self.ledger.queries.save_mechanisms(mechanisms)
        self.mechanisms = mechanisms
        self.totals.decisions += len(records)
        for record in records:
            self.hub.publish("decision", record)
        self.queries({str(d.query) for d in decided})

    # ---------------------------------------------------------------- queries

    def queries(self, names: Iterable[str]) -> None:
        """Brings queries up to date on the read model; publishes those of which more than the numbers changed."""
        shown = dict(self.read_model.views.queries)
        changed: list[Json] = []
        for name in names:
            if name in self.texts:
                found, before = self.query(name), shown.get(name)
                shown[name] = found
                if before is None or _lasting(found) != _lasting(before):
                    changed.append(found)
        self.read_model.show(queries=shown)
        for found in changed:
            self.hub.publish("query", found)

    def gone(self, name: QueryId) -> None:
        """A query that was stopped is freed."""
        self.texts.pop(name, None)
        self.read_model.drop_query(name)
        self.hub.publish("query_removed", {"id": name})

    def query(self, name: str) -> Json:
        """A query as people see it."""
        return self._statuses.show(name, self.texts.get(name, ""))

    # ---------------------------------------------------------------- measures

    def measures(self, measured: Measured) -> None:
        """Once a second: how everything is doing."""
        self.measured = measured
        self._statuses.measures(measured)
        self.read_model.show(measured=measured)
        self.read_model.show_deployment(measured)
        self.queries(list(self.texts))
        status, views = measured.status, self.read_model.views
        shown = {
            name: {key: found[key] for key in ("rate_tps", "latency_ms", "results")}
            | {"queue": self._queue(name), "status": found["status"], "reason": found.get("reason")}
            for name, found in views.queries.items()
        }
        host = {
            "tuples_in": status.ingest.rows if status.ingest else 0,
            "tuples_out": status.delivery.rows if status.delivery else 0,
            "tuples_in_tps": round(measured.tuples_in_tps, 2),
            "tuples_out_tps": round(measured.tuples_out_tps, 2),
            "pending": status.pending_tuples,
            "state_bytes": status.state_bytes,
            "steps_per_s": round(measured.steps_per_s, 2),
            "slots": [{"name": f"slot {n}", "busy": round(measured.busy, 3)} for n in range(len(status.slots))],
        }
        links = self.read_model.link_rates(measured)
        self.hub.publish("metrics", {"at_ms": measured.at_ms, "queries": shown, "host": host, "links": links})

    def _queue(self, name: str) -> int:
        """Tuples that wait before fragments of the query."""
        shape, counters = self.read_model.views.shapes.get(name), self.measured.counters if self.measured else {}
        owner, routing = self.loop.deployer.deployment.owner, self.loop.host.routing.fragments
        fragments = {owner[o] for o in (shape.operators if shape else ()) if o in owner}
        ports = {p for f in fragments if f in routing for p in routing[f].ports}
        return sum(counters[p].pending_tuples for p in ports if p in counters)


def _lasting(query: Json) -> Json:
    """A query without the numbers that change every second and are published as metrics."""
    lasting = {key: value for key, value in query.items() if key not in ("results", "rate_tps", "latency_ms")}
    demands = [(d["text"], d["met"]) for d in query["demands"]]
    return lasting | {"demands": demands, "reason": without_numbers(query.get("reason"))}


def finite(value: Any) -> Any:
    """JSON has no infinity: such as the forecast without a route."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [finite(inner) for inner in value]
    return value
