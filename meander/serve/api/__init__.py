"""The HTTP API: thin routers over the service. `docs/reference/http.md` is made from what is declared here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI

import meander.serve.api.adaptation as adaptation
import meander.serve.api.changes as changes
import meander.serve.api.live as live
import meander.serve.api.page as page
import meander.serve.api.queries as queries
import meander.serve.api.sites as sites
import meander.serve.api.system as system
import meander.serve.api.topology as topology
from meander.serve.api.auditing import Audited
from meander.serve.api.errors import install_errors
from meander.serve.api.guards import Headers, SizeLimit, may_read
from meander.serve.api.models import Problem
from meander.serve.problems import MEDIA_TYPE
from meander.serve.service import Service

BASE = "/api/v1"
ABOUT = """Meander keeps continuous queries running on Spark while the infrastructure under them moves.

Every request but `GET /health` needs `Authorization: Bearer TOKEN`: a reader's token to look, an operator's to change,
a site's to speak for that site.
Errors are `application/problem+json`; `detail` is a sentence for people. Requests that change something accept
`Idempotency-Key`: the same request sent again with the same key has no second effect and gets the first answer."""


def make_app(service: Service) -> FastAPI:
    """The application of one coordinator."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.hub.bind(asyncio.get_running_loop())
        yield

    app = FastAPI(
        title="Meander",
        version=service.version,
        description=ABOUT,
        openapi_url=f"{BASE}/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    wrong: dict[int | str, dict[str, Any]] = {
        "4XX": {
            "description": "Something is wrong with the request.",
            "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}},
        },
        "503": {
            "description": "The coordinator is starting or stopping.",
            "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}},
        },
    }
    app.include_router(system.open_router, prefix=BASE, tags=["system"])
    for name, module in (
        ("system", system),
        ("topology", topology),
        ("changes", changes),
        ("queries", queries),
        ("adaptation", adaptation),
        ("live", live),
        ("sites", sites),
    ):
        app.include_router(module.router, prefix=BASE, tags=[name], dependencies=[Depends(may_read)], responses=wrong)
    app.include_router(sites.site_router, prefix=BASE, tags=["sites"], responses=wrong)
    app.include_router(system.metrics_router, dependencies=[Depends(may_read)], include_in_schema=False)
    page.mount(app)
    install_errors(app)
    app.add_middleware(SizeLimit)
    app.add_middleware(Audited, service=service, base=BASE)
    app.add_middleware(Headers)
    return app
