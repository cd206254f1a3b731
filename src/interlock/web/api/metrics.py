"""`/metrics` of the console: the metrics of this process and of the store, for a user who may see everything in them.

Rule: counting starts with the first scrape, so a console that nobody scrapes counts nothing.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from interlock.errors import DeniedError
from interlock.observe.metrics.exposition import CONTENT_TYPE
from interlock.web.http.console import Console
from interlock.web.http.endpoint import Endpoint, EndpointApp, RequestContext

PATH = "/metrics"


async def get_metrics(request: RequestContext) -> Response:
    """Return the metrics as text. A user who may not see a kind in them gets none: they are not made per user."""
    exporter = await request.console.exporter()
    text = await exporter.render()
    if request.user.kinds is not None or not all(map(request.may_see, exporter.shown)):
        hint = "use a key without `kinds` whose roles may read all entities, or --probe"
        raise DeniedError("the metrics have kinds that you may not see", code="metrics.kinds", hint=hint)
    return Response(text, media_type=CONTENT_TYPE)


def metrics_route(console: Console) -> Route:
    """Return the route: not below the API, because scrapers look for it here."""
    endpoint = Endpoint(method="GET", path=PATH, summary="Get metrics", handler=get_metrics, media=CONTENT_TYPE)
    return Route(PATH, EndpointApp(console, endpoint), methods=["GET"])
