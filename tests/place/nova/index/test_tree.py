"""The index answers as a look at all nodes would, whatever happened to it."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from meander.place.nova.index import tree as trees
from meander.place.nova.index.search import ALL, Ends, Taste, cheapest, few_cheapest, nearest
from meander.place.nova.running.joins import node_rows

SINK = np.array([50.0, 50.0])
unit = st.floats(0, 1, width=32)
some = st.integers(0, 10_000)


class Index(RuleBasedStateMachine):
    """Nodes come, go, move and change their room; every question gets the brute-force answer."""

    @initialize(seed=st.integers(0, 1000), count=st.sampled_from([1, 5, 40, 300]))
    def build(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        room = 2000
        self.points = np.full((room, 2), np.nan)
        self.points[:count] = np.round(rng.uniform(0, 100, (count, 2)), 1)
        self.heights, self.free = np.zeros(room), np.zeros(room)
        self.heights[:count], self.free[:count] = rng.exponential(2, count), rng.integers(0, 50, count)
        self.alive = np.arange(room) < count
        self.count = count
        self.tree = trees.build(self.points, self.heights, self.free, self.alive)

    def pick(self, which: int) -> int | None:
        living = np.flatnonzero(self.alive)
        return int(living[which % len(living)]) if len(living) else None

    @rule(which=some, free=st.integers(-5, 80))
    def room_changes(self, which: int, free: int) -> None:
        node = self.pick(which)
        if node is not None:
            self.free[node] = free
            trees.set_free(self.tree, node, float(free))

    @rule(which=some)
    def leaves(self, which: int) -> None:
        node = self.pick(which)
        if node is not None:
            self.alive[node] = False
            trees.remove(self.tree, node)

    @rule(x=unit, y=unit, free=st.integers(0, 80), copies=st.integers(1, 40))
    def joins(self, x: float, y: float, free: int, copies: int) -> None:
        for _ in range(min(copies, len(self.points) - self.count)):
            node = self.count
            self.count += 1
            self.points[node], self.free[node], self.alive[node] = (100 * x, 100 * y), free, True
            self.tree = trees.grown(self.tree, len(self.points))
            trees.insert(self.tree, node, self.points[node], float(self.heights[node]), float(free))

    @rule(which=some, x=unit, y=unit)
    def moves(self, which: int, x: float, y: float) -> None:
        node = self.pick(which)
        if node is not None:
            trees.remove(self.tree, node)
            self.points[node] = 100 * x, 100 * y
            self.tree = trees.grown(self.tree, len(self.points))
            trees.insert(self.tree, node, self.points[node], float(self.heights[node]), float(self.free[node]))

    @rule(x=unit, y=unit, need=st.integers(0, 60))
    def nearest_is_nearest(self, x: float, y: float, need: int) -> None:
        point = np.array([100 * x, 100 * y])
        node, away = nearest(self.tree, point, float(need))
        able = np.flatnonzero(self.alive & (self.free >= need))
        if not len(able):
            assert node == trees.NOWHERE
            return
        distance = np.linalg.norm(self.points[able] - point, axis=1) + self.heights[able]
        assert node in able
        assert np.isclose(away, distance.min(), rtol=1e-9)

    @rule(a=unit, b=unit, need=st.integers(0, 60), weight=st.sampled_from([0.0, 0.5, 1.0]), tail=st.booleans())
    def cheapest_is_cheapest(self, a: float, b: float, need: int, weight: float, tail: bool) -> None:
        left, right = np.array([100 * a, 100 * b]), np.array([100 * b, 20.0])
        taste = Taste(weight, 60.0 if tail else np.inf, 25.0, 0.0)
        ends = Ends(left, right, SINK, 1.0, 2.0)
        able = np.flatnonzero(self.alive & (self.free >= need))
        costs = self.costs(ends, taste)
        node, cost = cheapest(self.tree, ends, float(need), np.inf, ALL, taste, np.inf)
        if not len(able):
            assert node == trees.NOWHERE
            return
        assert np.isclose(cost, costs[able].min(), rtol=1e-9)
        nodes, found = np.empty(8, dtype=np.int64), np.empty(8)
        rows = node_rows(len(self.points))
        rows["capacity"] = np.arange(len(self.points)) % 60
        many = few_cheapest(self.tree, ends, rows, float(need), taste, ALL, nodes, found)
        best = np.sort(costs[np.flatnonzero(self.alive & (rows["capacity"] >= need))])[:8]
        assert np.allclose(found[:many], best, rtol=1e-9)
        most = need + 5.0
        within = np.flatnonzero(self.alive & (self.free >= need) & (self.free <= most))
        node, cost = cheapest(self.tree, ends, float(need), most, ALL, taste, np.inf)
        assert np.isclose(cost, costs[within].min(), rtol=1e-9) if len(within) else node == trees.NOWHERE

    def costs(self, ends: Ends, taste: Taste) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        onward = self.heights + taste.sink_weight * (np.linalg.norm(self.points - ends.sink, axis=1) + self.heights)
        total = np.zeros(len(self.points))
        for point, height in ((ends.left, ends.left_height), (ends.right, ends.right_height)):
            way = np.linalg.norm(self.points - point, axis=1) + height + onward
            total += np.where(way > taste.tail_ms, 2 * way + taste.penalty - taste.tail_ms, way)
        return total

    @invariant()
    def everybody_has_a_slot(self) -> None:
        if hasattr(self, "tree"):
            living = np.flatnonzero(self.alive)
            assert (self.tree.slot_node[self.tree.slot_of[living]] == living).all()


TestIndex = Index.TestCase
TestIndex.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
