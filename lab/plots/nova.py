"""A picture of the cost space: nodes, which of them run replicas, and the flows from sources over replicas to sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meander.place.nova.running.joins import Joins

MOST_NODES = 20_000
MOST_FLOWS = 400


def _dots(axes: Any, points: NDArray[np.float64], **look: Any) -> None:
    axes.scatter(points[:, 0], points[:, 1], **look)


def plot(joins: Joins, path: Path, title: str = "") -> None:
    """Writes the picture; the ending of the path decides the format (.svg, .png, .pdf)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    board, rng = joins.board, np.random.default_rng(0)
    points = (
        board.points[:, :2]
        if board.points.shape[1] > 1
        else np.column_stack((board.points, np.zeros(len(board.points))))
    )
    living = np.flatnonzero(joins.alive)
    shown = living if len(living) <= MOST_NODES else rng.choice(living, MOST_NODES, replace=False)
    active = np.flatnonzero(joins.active)
    sources = np.unique(board.sources["node"][board.joins["ends"][active].ravel()])
    sinks = np.unique(board.joins["sink"][active])
    rows = joins.rows()
    hosts = np.unique(board.replicas["node"][rows])
    figure, axes = pyplot.subplots(figsize=(7, 5.5), layout="constrained")
    some = rows if len(rows) <= MOST_FLOWS else rng.choice(rows, MOST_FLOWS, replace=False)
    for row in some:
        join, host = int(board.replicas["join"][row]), int(board.replicas["node"][row])
        for source in board.joins["ends"][join]:
            axes.plot(*points[[board.sources["node"][source], host]].T, color="tab:blue", alpha=0.25, linewidth=0.6)
        axes.plot(*points[[host, board.joins["sink"][join]]].T, color="tab:orange", alpha=0.25, linewidth=0.6)
    _dots(axes, points[shown], s=5, color="0.75", label="nodes", zorder=2)
    _dots(axes, points[np.intersect1d(sources, shown)], s=6, color="tab:blue", label="sources", zorder=3)
    size = 8 + 60 * board.nodes["load"][hosts] / max(float(board.nodes["load"].max()), 1e-9)
    _dots(axes, points[hosts], s=size, color="tab:red", alpha=0.7, label="nodes that run joins", zorder=4)
    _dots(axes, points[sinks], s=90, marker="*", color="black", label="sinks", zorder=5)
    axes.set_xlabel("ms")
    axes.set_ylabel("ms")
    axes.set_title(title)
    axes.legend(loc="best", fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
