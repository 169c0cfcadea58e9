"""The notebook of the docs: its cells run, and it carries the plots that it promises."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "placements.ipynb"


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return [c for c in found if c["cell_type"] == "code"]


def test_all_cells_run_one_after_the_other(cells: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    mpl.use("agg")
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    plt.close("all")
    printed = capsys.readouterr().out
    assert "5 queries over 65 nodes" in printed
    assert names["table"]["ilp"][0] <= min(product for product, _, _ in names["table"].values()) + 1e-9
    assert sum(names["moved"]) > 0


def test_it_shows_its_plots(cells: list[dict[str, Any]]) -> None:
    shown = [o for c in cells for o in c["outputs"] if "image/png" in o.get("data", {})]
    assert len(shown) == 4
