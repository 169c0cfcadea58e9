"""The address of a broker and its settings, as users write them, checked before anything starts."""

from __future__ import annotations

from pathlib import Path

from meander.model.errors import InputError


def addresses(text: str) -> list[tuple[str, int]]:
    """Hosts and ports of the brokers of one cluster; raises InputError for anything else."""
    found = []
    for each in text.split(","):
        host, _, port = each.strip().rpartition(":")
        if not (host and port.isdecimal() and 0 < int(port) < 65536):
            raise InputError(f"{text!r} is no broker; write its host and port, such as hub:9092")
        found.append((host.strip("[]"), int(port)))
    return found


def client_settings(path: Path) -> dict[str, str]:
    """The settings in a file for Kafka's clients: lines `name=value`, and remarks that begin with `#`."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the settings of the broker cannot be read: {error}", str(path)) from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InputError("write settings of Kafka's clients as name=value, one a line", f"{path}:{number}")
        found[name.strip()] = value.strip()
    return found
