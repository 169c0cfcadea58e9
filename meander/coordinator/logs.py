"""Logs: lines for people, or JSON lines for machines. Both go to standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

QUIET = ("py4j", "uvicorn", "asyncio")
"""Libraries whose chatter is not wanted below warnings."""


class JsonLogLines(logging.Formatter):
    """One object a line: time, level, logger, thread, message, and the trace of an exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        found = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["trace"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


def start_logging(*, as_json: bool = False, verbose: bool = False) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonLogLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.INFO if verbose or as_json else logging.WARNING, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
