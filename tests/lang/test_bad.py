"""Every file in `bad/` is a script with one mistake; its first line is the exact error it gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.lang import sql
from meander.model.errors import InputError
from tests.lang.streams import SINKS, STREAMS

FILES = sorted((Path(__file__).parent / "bad").glob("*.sql"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bad_script_gets_its_error(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    expected = text.splitlines()[0].removeprefix("-- ")
    with pytest.raises(InputError) as caught:
        sql(text, STREAMS, SINKS)
    assert str(caught.value) == expected


def test_there_are_bad_scripts() -> None:
    assert len(FILES) > 50
