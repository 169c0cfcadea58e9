"""The HTTP API: thin routers over the service. `docs/reference/http.md` is made from the declarations here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI

import meander.api.adaptation as adaptation
import meander.api.changes as changes
import meander.api.event_stream as live
import meander.api.page_files as page
import meander.api.queries as queries
import meander.api.sites as sites
import meander.api.system as system
import meander.api.topology as topology
import meander.api.users.logins as logins
import meander.api.users.rows as rows
from meander.api.auditing import Audited
from meander.api.errors import install_errors
from meander.api.models import ProblemDetails
from meander.api.request_checks import Headers, SizeLimit, may_read
from meander.coordinator.problems import MEDIA_TYPE
from meander.coordinator.service.service import Service

BASE = "/api/v1"
ABOUT = """Meander keeps continuous queries running on Spark while the infrastructure under them moves.

Every request but `GET /health` and `POST /login` needs `Authorization: Bearer TOKEN`: a reader's token to look, an
operator's to change, an admin's to say who may do what, a site's to speak for that site.
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
            "content": {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
        },
        "503": {
            "description": "The coordinator is starting or stopping.",
            "content": {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
        },
    }
    app.include_router(system.open_router, prefix=BASE, tags=["system"])
    app.include_router(logins.open_router, prefix=BASE, tags=["users"], responses=wrong)
    for name, module in (
        ("system", system),
        ("topology", topology),
        ("changes", changes),
        ("queries", queries),
        ("adaptation", adaptation),
        ("live", live),
        ("sites", sites),
        ("users", logins),
    ):
        app.include_router(module.router, prefix=BASE, tags=[name], dependencies=[Depends(may_read)], responses=wrong)
    app.include_router(rows.router, prefix=BASE, tags=["rows"], responses=wrong)
    app.include_router(sites.site_router, prefix=BASE, tags=["sites"], responses=wrong)
    app.include_router(system.metrics_router, dependencies=[Depends(may_read)], include_in_schema=False)
    page.mount(app)
    install_errors(app)
    app.add_middleware(SizeLimit)
    app.add_middleware(Audited, service=service, base=BASE)
    app.add_middleware(Headers)
    return app
