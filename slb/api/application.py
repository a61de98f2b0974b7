"""The two applications: all of the API on its own listener, and the part of it the data listener hands over."""

from collections.abc import Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from slb.api.auth import Rule, api_rule, guard, keyring_of, traffic_rule
from slb.api.bodies import MAX_BODY
from slb.api.body_room import bounded
from slb.api.changes import ChangesEndpoint
from slb.api.dashboard import page_first
from slb.api.dead_jobs import DeadJobsEndpoint
from slb.api.endpoints import Endpoint, known_query
from slb.api.explain import ExplainEndpoint
from slb.api.fleet import FleetEndpoint
from slb.api.instances import InstancesEndpoint
from slb.api.job_events import JobEventsEndpoint
from slb.api.job_models import JobModelsEndpoint
from slb.api.job_pushes import JobPushesEndpoint
from slb.api.job_reports import JobReportsEndpoint
from slb.api.jobs import JobsEndpoint
from slb.api.openapi import OpenApiEndpoint
from slb.api.parts import ApiParts, Fleet, Jobs
from slb.api.quota import QuotaEndpoint
from slb.api.quota_models import QuotaModelsEndpoint
from slb.api.register import RegisterEndpoint
from slb.api.replies import OnAnswer, closing, continuing, in_our_form
from slb.api.routes import RoutesEndpoint
from slb.api.scale import ScaleEndpoint
from slb.api.shortcut import Shortcut
from slb.api.status import HealthEndpoint, StatusEndpoint
from slb.api.token import TokenEndpoint
from slb.api.upstreams import UpstreamsEndpoint
from slb.api.written import WrittenEndpoint


def make_api(parts: ApiParts) -> web.Application:
    return _application(parts, api_endpoints(parts), api_rule, before=[page_first])


def api_endpoints(parts: ApiParts) -> list[Endpoint]:
    faces = (
        RegisterEndpoint(parts),
        RoutesEndpoint(parts),
        WrittenEndpoint(parts),
        ScaleEndpoint(parts),
        UpstreamsEndpoint(parts),
        InstancesEndpoint(parts),
        StatusEndpoint(parts),
        TokenEndpoint(),
        HealthEndpoint(parts),
        *(_of_fleet(parts, parts.fleet) if parts.fleet else ()),
        *(_of_jobs(parts, parts.jobs) if parts.jobs else ()),
        *([QuotaEndpoint(parts, parts.quota), QuotaModelsEndpoint(parts, parts.quota)] if parts.quota else ()),
    )
    endpoints = [endpoint for face in faces for endpoint in face.endpoints()]
    return endpoints + OpenApiEndpoint(endpoints).endpoints()


def _of_fleet(parts: ApiParts, fleet: Fleet) -> Sequence[Any]:
    return FleetEndpoint(parts, fleet), ChangesEndpoint(parts), ExplainEndpoint(parts, fleet)


def _of_jobs(parts: ApiParts, jobs: Jobs) -> Sequence[Any]:
    faces = (JobsEndpoint(parts, jobs), JobEventsEndpoint(parts, jobs), DeadJobsEndpoint(parts, jobs))
    return *faces, JobModelsEndpoint(parts, jobs), JobPushesEndpoint(parts, jobs), JobReportsEndpoint(parts, jobs)


def make_shortcut(parts: ApiParts, on_answer: OnAnswer) -> Shortcut | None:
    """The shortcut of the API listener; None where no endpoint uses it."""
    if parts.quota is None:
        return None
    face = QuotaEndpoint(parts, parts.quota)
    rights = {endpoint.path: endpoint.rights for endpoint in face.endpoints() if endpoint.method == "POST"}
    return Shortcut(face.short_ways(), lambda: parts.settings, on_answer, rights)


def make_data_api(parts: ApiParts) -> web.Application:
    """The endpoints of the data listener: /register, /_slb/healthz, /_slb/readyz. Every reply closes."""
    endpoints = RegisterEndpoint(parts).endpoints() + HealthEndpoint(parts, prefix="/_slb").endpoints()
    return _application(parts, endpoints, traffic_rule, around=[closing])


def _application(
    parts: ApiParts,
    endpoints: Sequence[Endpoint],
    rule: Rule,
    around: Sequence[Middleware] = (),
    before: Sequence[Middleware] = (),
) -> web.Application:
    """`rule` guards what is not open; `around` is the outermost, `before` comes before `rule`."""
    is_open = frozenset(endpoint.path for endpoint in endpoints if endpoint.is_open)
    rights = {endpoint.handler: endpoint.rights for endpoint in endpoints}
    keyring = keyring_of(lambda: parts.settings)
    guarded = guard(rule, keyring, is_open, lambda request: rights.get(request.match_info.handler))
    every = [*around, in_our_form, *before, guarded, known_query(endpoints), bounded(parts.body_room), continuing]
    app = web.Application(client_max_size=MAX_BODY, middlewares=every)
    for endpoint in endpoints:
        endpoint.add_to(app)
    return app
