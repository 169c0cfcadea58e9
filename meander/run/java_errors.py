"""What Java says when something failed there: the innermost exception, without its stack."""

from __future__ import annotations

from typing import Any


def said(error: Exception) -> str:
    """What went wrong, as the innermost exception says it."""
    java = _cause(error)
    text = str(error) if java is None else str(java.getMessage() or java.getClass().getSimpleName())
    return (text.strip().splitlines() or [type(error).__name__])[0]


def innermost(error: Exception) -> str:
    """What the innermost exception is called."""
    java = _cause(error)
    return type(error).__name__ if java is None else str(java.getClass().getSimpleName())


def _cause(error: Exception) -> Any:
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    return java
