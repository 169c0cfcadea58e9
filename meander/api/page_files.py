"""The page: static files that were built before, served as they are."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FILES = Path(__file__).parent / "page" / "dist"
ONE_YEAR_S = 31_536_000


class Page(StaticFiles):
    """Files whose name has a fingerprint in it never change; all others are asked for again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        lasting = path.startswith("assets/")
        response.headers["cache-control"] = f"public, max-age={ONE_YEAR_S}, immutable" if lasting else "no-cache"
        return response


def mount(app: FastAPI, files: Path = FILES) -> None:
    """Serves the page at `/` when it was built."""
    if (files / "index.html").is_file():
        app.mount("/", Page(directory=files, html=True), name="page")
