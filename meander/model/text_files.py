"""Text and JSON files, plain or gzipped, and one sentence when one cannot be read."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from meander.model.errors import InputError


def read_text(path: Path) -> str:
    """The text of a file, unpacked when its name ends in .gz."""
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8-sig")
    except (EOFError, zlib.error):
        raise InputError("the compressed file is cut off; copy it again", str(path)) from None
    except gzip.BadGzipFile:
        raise InputError("this is not a gzip file; unpack it or take the .gz off its name", str(path)) from None
    except OSError as error:
        raise InputError(f"cannot read this file: {(error.strerror or 'unknown reason').lower()}", str(path)) from None
    except UnicodeDecodeError:
        raise InputError("this file is not text in UTF-8", str(path)) from None


def read_json(path: Path) -> Any:
    """The value in a JSON file."""
    return parse_json(read_text(path), str(path))


def parse_json(text: str, file: str, first_line: int = 1) -> Any:
    """A JSON value, or an error that tells a cut-off text from a wrong one."""
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno + first_line - 1}, column {error.colno}"
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise InputError("the JSON is cut off here; copy the file again", where) from None
        raise InputError(f"this is not JSON: {error.msg[0].lower()}{error.msg[1:]}", where) from None
    except RecursionError:
        raise InputError("the JSON is nested too deeply", file) from None
    except InputError as error:
        raise error.at(file) from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        doubled = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise InputError(f"key {doubled!r} appears twice; keep one of them")
    return values
