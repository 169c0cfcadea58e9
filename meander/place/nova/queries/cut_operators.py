"""The operators of a cut in the global query plan: made, used again, connected anew, and removed.

An operator without memory that is asked for again is the one that is there already. Numbers are given out in the order
in which building a cut comes across its operators, so that a cut which was recorded is made again with the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meander.model.global_plan import OperatorState, PlanOperator
from meander.model.ids import NodeId, OperatorId
from meander.model.operators import Operator, Source, output_schema
from meander.model.signature import Signature, signature_of
from meander.place.catalog import Catalog
from meander.place.rates import row_bytes
from meander.place.sharing import estimate

Key = tuple[Operator, tuple[OperatorId, ...], NodeId | None]
"""The identity of an operator without memory: two with the same key are one."""


class CutOperators:
    """Those of one query."""

    def __init__(self, catalog: Catalog, shared: dict[Signature, OperatorId]) -> None:
        """`shared` are sources that other queries may read as well."""
        self.catalog, self.shared = catalog, shared
        self.visited: dict[OperatorId, None] = {}
        """The operators of the present cut, in the order in which building it comes across them."""
        self.fresh: list[OperatorId] = []
        """The operators that are new with the present cut."""
        self.sources: dict[Signature, OperatorId] = {}
        """The sources of this query."""
        self.given: list[OperatorId] = []
        """The numbers of operators that are made again as they were, the next one last."""
        self._made: dict[Key, OperatorId] = {}
        self._known: dict[Key, OperatorId] = {}
        """The operators that existed before the change that is being made."""

    @property
    def made(self) -> list[OperatorId]:
        """The operators without memory."""
        return list(self._made.values())

    def begin(self) -> None:
        """Another cut is about to be built."""
        self._known, self._made, self.fresh, self.visited = self._made, {}, [], {}

    def source(self, spec: Source) -> OperatorId:
        """A source's operator, which other queries may read as well."""
        assert spec.node is not None
        plan, signature = self.catalog.plan, signature_of(spec, (), ())
        found = self.sources.get(signature)
        if found is None and self.given:
            found = self.given[-1]
            if found in plan.operators:
                self.shared.setdefault(signature, found)
        elif found is None:
            found = self.shared.get(signature)
        if found is None or found not in plan.operators:
            found = self.add(spec, (), self.catalog.topology.known_id(spec.node), signature=signature)
            self.shared[signature] = found
        elif plan[found].state is OperatorState.TO_BE_REMOVED:
            there = found in self.catalog.placement.nodes
            plan[found].become(OperatorState.PLACED if there else OperatorState.TO_BE_PLACED)
        self.sources[signature] = found
        self.visit(found)
        return found

    def operator(
        self, spec: Operator, inputs: tuple[OperatorId, ...], node: NodeId | None, slots: int = 0
    ) -> OperatorId:
        """An operator without memory: the one that is there already, or a new one. Without a node a mechanism places
        it."""
        key = (spec, inputs, node)
        found = self._made.get(key) or self._known.get(key)
        if found is None:
            found = self.add(spec, inputs, node, slots)
        self._made[key] = found
        self.visit(found)
        return found

    def add(
        self,
        spec: Operator,
        inputs: tuple[OperatorId, ...],
        node: NodeId | None,
        slots: int = 0,
        *,
        signature: Signature | None = None,
    ) -> OperatorId:
        plan = self.catalog.plan
        schema = output_schema(spec, tuple(plan[i].schema for i in inputs))
        number = self.given[-1] if self.given else plan.fresh_id()
        record = PlanOperator(number, spec, schema, signature or Signature(f"part {number}"), inputs, node, slots)
        record.row_bytes = row_bytes(schema)
        estimate(self.catalog, record)
        plan.add_operator(record)
        self.fresh.append(number)
        self.visit(number)
        return number

    def visit(self, operator: OperatorId) -> None:
        if operator not in self.visited:
            self.visited[operator] = None
            if self.given:
                assert self.given.pop() == operator, f"operator {operator} is not where it was"

    def connect(self, operator: OperatorId, inputs: tuple[OperatorId, ...]) -> list[OperatorId]:
        """Lets an operator read others from now on; returns those that it reads no more."""
        plan, record = self.catalog.plan, self.catalog.plan[operator]
        left = [upstream for upstream in dict.fromkeys(record.inputs) if upstream not in inputs]
        for upstream in left:
            self.catalog.release_route((upstream, operator))
            del plan[upstream].readers[operator]
            plan[upstream].users -= 1
        for upstream in dict.fromkeys(inputs):
            if upstream not in record.inputs:
                plan[upstream].readers[operator] = None
                plan[upstream].users += 1
        record.inputs = inputs
        plan.readers_changed()
        return left

    def settle(self, operator: OperatorId, node: NodeId | None) -> bool:
        """Pins an operator that stands behind the join to a node, or lets a mechanism place it; whether it has to be
        placed anew."""
        plan, record = self.catalog.plan, self.catalog.plan[operator]
        slots = 0 if node is not None else 1
        if record.pin == node and record.slots == slots:
            return False
        there = self.catalog.placement.nodes.get(operator)
        if there is not None:
            before, load_tps, memory_mb = record.charge
            record.slots = slots
            now = record.charge
            self.catalog.ledger.add(there, now[0] - before, now[1] - load_tps, now[2] - memory_mb)
        record.pin, record.slots = node, slots
        plan.readers_changed()
        if record.state is OperatorState.PLACED:
            record.become(OperatorState.TO_BE_REPLACED)
        return True

    def remove(self, operators: Sequence[OperatorId]) -> None:
        """Marks operators without readers for removal, and takes them out of the counts."""
        plan, gone = self.catalog.plan, set(operators)
        for operator in operators:
            record = plan[operator]
            record.become(OperatorState.TO_BE_REMOVED)
            for upstream in dict.fromkeys(record.inputs):
                plan[upstream].users -= 1
            assert not set(record.readers) - gone, f"operator {operator} is still read"

    def release(self, operators: Iterable[OperatorId]) -> list[OperatorId]:
        """Marks those of these operators for removal that have no user, and all below that have none then."""
        plan, stack = self.catalog.plan, list(operators)
        gone: list[OperatorId] = []
        while stack:
            operator = stack.pop()
            record = plan[operator]
            if not record.users and record.state is not OperatorState.TO_BE_REMOVED:
                record.become(OperatorState.TO_BE_REMOVED)
                gone.append(operator)
                for upstream in dict.fromkeys(record.inputs):
                    plan[upstream].users -= 1
                    stack.append(upstream)
        return gone

    def unshare(self) -> None:
        """Ordinary queries that come find no source of this one that no ordinary query reads any more: what they have
        depends on the log of ordinary queries only."""
        plan, running = self.catalog.plan, self.catalog.running
        for signature, source in self.sources.items():
            if running is not self.shared and running.get(signature) == source:
                users = (r for r in plan[source].readers if plan[r].state is not OperatorState.TO_BE_REMOVED)
                if all(plan[r].signature.startswith("part ") for r in users):
                    del running[signature]
