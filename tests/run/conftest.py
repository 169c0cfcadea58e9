"""What tests of the data plane share: a call that Meander forgot to guard."""

import pytest

from meander.model.expressions.tree import Call
from meander.run import expressions, null_guards


@pytest.fixture
def unguarded_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark fails on `round` of numbers near the limit, as it does on whatever call has no guard."""

    def guarded(call: Call, texts: list[str]) -> str | None:
        return None if call.function == "round" else null_guards.guarded(call, texts)

    monkeypatch.setattr(expressions, "guarded", guarded)
