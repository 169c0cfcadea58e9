"""The five documented queries: `meander explain` shows for each exactly what is in `explained/`.

After a change that is meant, `python -m tests.lang.test_examples` writes the files again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.lang import load_queries
from meander.lang.explain import explain_json, explain_text
from tests.lang.streams import SINKS, STREAMS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "queries").glob("*.[sp][qy]*"))
EXPLAINED = Path(__file__).parent / "explained"


def explained(path: Path) -> str:
    return "\n\n".join(explain_text(q) for q in load_queries(path, STREAMS, SINKS).queries) + "\n"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_explained(path: Path) -> None:
    assert explained(path) == (EXPLAINED / f"{path.stem}.txt").read_text(encoding="utf-8")


def test_there_are_five() -> None:
    assert len(EXAMPLES) == 5


def test_json_has_the_whole_graph() -> None:
    path = next(p for p in EXAMPLES if p.stem == "trains_in_storm")
    (query,) = load_queries(path, STREAMS, SINKS).queries
    data = explain_json(query)
    operators = data["operators"]
    assert isinstance(operators, list)
    join = next(o for o in operators if o["kind"] == "window join")
    assert join["inputs"] == [1, 4]
    assert join["stateful"] is True
    assert join["schema"][0] == {"name": "ts", "type": "timestamp"}
    assert len({o["signature"] for o in operators}) == len(operators)


if __name__ == "__main__":
    for example in EXAMPLES:
        (EXPLAINED / f"{example.stem}.txt").write_text(explained(example), encoding="utf-8")
