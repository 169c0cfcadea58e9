"""Random cases for operators: tuples of several producers with disorder and stragglers, and cuts into steps.

A case is one fragment. Its streams have one or two producers each, with a watermark of their own; a cut says how many
tuples of each producer every step takes, and how far the fragment's watermark is known by then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.model.operators import Source
from meander.model.plan import QueryPlan
from meander.model.schema import Kind, Schema
from meander.model.streams import Stream
from meander.run.fragments.template import BoundFragment
from meander.run.frames import BEGIN, END, frame_schema, source_watermarks
from tests.run.reference import Row, Value

STREAMS = {
    "a": Stream("a", Schema.of(ts="bigint", k="int", v="double", n="bigint", s="string"), "ts"),
    "b": Stream("b", Schema.of(ts="bigint", k="int", w="double"), "ts"),
}

DISORDER_MS = 300


@dataclass
class Producer:
    """One producer's tuples in arrival order, and where the steps cut them."""

    port: int
    rows: list[Row]
    watermarks: list[int]
    """After each number of tuples."""
    cuts: list[int]


@dataclass
class Case:
    """One fragment: its producers, and for each step the watermark that it has heard of."""

    producers: list[Producer]
    after: list[int]

    def rows(self, port: int) -> list[Row]:
        return [r for p in self.producers if p.port == port for r in p.rows]

    def batch(self, port: int, step: int) -> list[Row]:
        """The new tuples of a step, producers one after the other."""
        return [r for p in self.producers if p.port == port for r in p.rows[_cut(p, step - 1) : _cut(p, step)]]


def _cut(producer: Producer, step: int) -> int:
    return producer.cuts[step] if step >= 0 else 0


def random_case(rng: random.Random, plan: QueryPlan, bound: BoundFragment, steps: int) -> Case:
    producers = []
    for number, operator_id in enumerate(bound.ports):
        source = plan.operators[operator_id]
        assert isinstance(source, Source)
        producers += [_producer(rng, number, source.schema, steps) for _ in range(rng.choice((1, 1, 2)))]
    heard, after = BEGIN, []
    for step in range(steps):
        known = min(p.watermarks[p.cuts[step]] for p in producers)
        # Watermarks travel on their own: a step may hear of them late, or hear of nothing else.
        heard = known if rng.random() < 0.7 else heard
        after.append(heard)
    after[-1] = END
    return Case(producers, after)


def _producer(rng: random.Random, port: int, schema: Schema, steps: int) -> Producer:
    count = rng.choice((0, 3, 8, 16))
    times, clock = [], rng.randrange(-500, 1500)
    for _ in range(count):
        clock += rng.choice((0, 1, 10, 50, 50, 200, 900))
        back = rng.choice((0, 0, 0, 1, 100, DISORDER_MS)) if rng.random() < 0.85 else rng.randrange(5000)
        times.append(clock - back)
    stamps = np.array(times, np.int64)
    before = source_watermarks(stamps, DISORDER_MS).tolist()
    rows = [
        Row(ts, wm, ts, tuple(_value(rng, f.type.kind, f.name, ts) for f in schema))
        for ts, wm in zip(times, before, strict=True)
    ]
    watermarks = [*before, max(before[-1], times[-1] - DISORDER_MS)] if rows else [BEGIN]
    cuts = [*sorted(rng.randrange(count + 1) for _ in range(steps - 1)), count]
    return Producer(port, rows, watermarks, cuts)


def _value(rng: random.Random, kind: Kind, name: str, ts: int) -> Value:
    if name == "ts":
        return ts
    if rng.random() < 0.1:
        return None
    match kind:
        case Kind.INT:
            return rng.randrange(3)
        case Kind.BIGINT:
            return rng.choice((rng.randrange(-5, 6), 2**62, -(2**40)))
        case Kind.DOUBLE:
            return rng.choice((rng.randrange(-20, 21) / 10, rng.uniform(-1, 1), rng.uniform(-1e9, 1e9)))
    return rng.choice(("x", "y", "zebra"))


def table_of(bound: BoundFragment, port: int, batches: Sequence[Sequence[Row]]) -> pa.Table:
    """Tuples of all fragments, one batch each, as a step reads them."""
    schema = frame_schema(bound.template.ports[port])
    rows = [(f, r.ts, r.wm, r.newest, *r.values) for f, batch in enumerate(batches) for r in batch]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
