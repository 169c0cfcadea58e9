"""Java's part of an error: the exceptions behind it, the innermost one, and its message."""

from __future__ import annotations

from typing import Any, NamedTuple

MOST_CAUSES = 20


class JavaError(NamedTuple):
    """One exception of a chain of causes: the name of its class, without the package, and its message."""

    name: str
    message: str


def said(error: Exception) -> str:
    """The message of the innermost exception."""
    java = _cause(error)
    text = str(error) if java is None else str(java.getMessage() or java.getClass().getSimpleName())
    return (text.strip().splitlines() or [type(error).__name__])[0]


def innermost(error: Exception) -> str:
    """The class name of the innermost exception."""
    java = _cause(error)
    return type(error).__name__ if java is None else str(java.getClass().getSimpleName())


def causes(error: BaseException) -> list[JavaError]:
    """The exceptions of Java behind an error, the outermost first; none if it has none or Java has ended."""
    found: list[JavaError] = []
    java = _origin(error)
    try:
        while java is not None and len(found) < MOST_CAUSES:
            found.append(JavaError(str(java.getClass().getSimpleName()), str(java.getMessage() or "")))
            java = java.getCause()
    except Exception:  # Java may end while it is asked: what was found is all there is
        return found
    return found


def _cause(error: Exception) -> Any:
    java = _origin(error)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    return java


def _origin(error: BaseException) -> Any:
    """The exception of Java that PySpark or Py4J made an error of."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)
