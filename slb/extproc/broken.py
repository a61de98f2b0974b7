"""Replies that broke off behind their heads. Envoy ends the stream of such a request as that of any other: by its
access log alone it tells whose doing it was. It streams the entries of these requests to slb."""

from collections.abc import Iterator
from typing import NamedTuple

from envoy.config.core.v3.base_pb2 import RequestMethod
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage

from slb.errors import UPSTREAM_RESET
from slb.extproc.context import ExtProcContext
from slb.extproc.exchange import BROKE_OFF
from slb.extproc.verdict import speaks_broken_off
from slb.extproc.words import NAMESPACE, ROUTE, SERVED

_AFTER_HEAD = "upstream_reset_after_response_started"
_BY_UPSTREAM = ("{connection_termination", "{protocol_error", "{remote_re")
"""What follows, where the upstream has done it: an answer that ends too soon is a `protocol_error` in HTTP/1."""


class Entry(NamedTuple):
    """Of a reply that its upstream broke off. `route`: the path of slb's, empty where slb has not chosen; `served`:
    the upstream's address; `duration`: seconds."""

    request_id: str
    route: str
    served: str
    status: int
    method: str
    path: str
    duration: float


def broken_off(message: bytes) -> Iterator[Entry]:
    """The entries of such replies; others are passed over. Raises what protobuf raises for what is no message."""
    for each in StreamAccessLogsMessage.FromString(message).http_logs.log_entry:
        details = each.response.response_code_details
        if not details.startswith(_AFTER_HEAD) or not details.startswith(_BY_UPSTREAM, len(_AFTER_HEAD)):
            continue
        request, common = each.request, each.common_properties
        lb = common.metadata.filter_metadata[NAMESPACE].fields
        yield Entry(
            request.request_id,
            lb[ROUTE].string_value,
            lb[SERVED].string_value,
            each.response.response_code.value,
            RequestMethod.Name(request.request_method),
            (request.original_path or request.path).partition("?")[0],
            common.duration.ToTimedelta().total_seconds(),
        )


class Broken:
    """Counts them. Where the request has not ended here, it ends as a failed one. Where it has, or another process
    was asked for it, it was counted as answered, and counts once more."""

    def __init__(self, context: ExtProcContext) -> None:
        self._context = context

    def hear(self, message: bytes) -> None:
        for entry in broken_off(message):
            exchange = self._context.open.get(entry.request_id)
            if exchange is None or not exchange.broke_off(entry.served):
                self._count(entry)

    def _count(self, entry: Entry) -> None:
        context, mirror = self._context, self._context.mirror
        route = mirror.table.routes.get(entry.route)
        upstream = mirror.upstream(entry.served) or mirror.upstream(f"https://{entry.served}")
        if route is None or upstream is None or not speaks_broken_off(entry.status):
            return
        status, reason = entry.status, UPSTREAM_RESET.name
        context.failures.note(entry.request_id, upstream)
        context.witness.failed(upstream, reason, route)
        context.metrics.traffic.broke_off(route.path, upstream.member, (status, reason))
        if context.access_log.wants(status, reason, True):
            context.access_log.write(
                method=entry.method,
                path=entry.path,
                status=status,
                reason=reason,
                detail=f"{entry.served} {BROKE_OFF}",
                route=route.path,
                upstream=upstream.member,
                node=upstream.spec.node,
                duration=entry.duration,
                request_id=entry.request_id,
            )
