"""`slb explain`: why a request went where it went, or was refused."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import typer

from slb.cli.client import ApiClient
from slb.cli.console import show_json, show_pairs
from slb.cli.events import printable
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, TokenOption, UrlOption

_DECIDED = {
    "policy": "the route's policy; it needs no slot",
    "redis": "Redis, for the whole fleet",
    "here": "this instance alone: Redis did not answer in time",
    "refused": "slb, before it came to any upstream",
}


def explain(
    request_id: str,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Why a request went where it went, or was refused, by its X-Request-Id: asks all instances, each of which
    remembers its last ones."""
    answer = ApiClient(url, token, ca).call("GET", f"/explain/{quote(request_id)}")
    if as_json:
        show_json(answer)
        return
    for number, found in enumerate(answer["found"]):
        if number:
            typer.echo()
        show_pairs((name, printable(value)) for name, value in explained(found))


def explained(found: Any) -> Iterator[tuple[str, str]]:
    """Names and what they are, of one process's answer."""
    came = datetime.fromtimestamp(found["time"]).astimezone()
    yield "came", f"{came:%Y-%m-%d %H:%M:%S}, to {found['instance_name']}"
    yield "answer", f"{found['status']}{' ' + found['reason'] if found['reason'] else ''}"
    if found["detail"]:
        yield "why", found["detail"]
    yield "route", found["route"] or "none"
    yield "decided by", _DECIDED.get(found["decided_by"], found["decided_by"])
    if found["position"] is not None:
        yield "queued", f"{_seconds(found['queued'])}, with {found['position']} of its class before it"
    for each in found["failed"]:
        yield "failed", each
    yield "upstream", found["upstream"] or "none"
    for name, key in (("sent", "sent_after"), ("first byte", "first_byte_after")):
        if found[key] is not None:
            yield name, f"after {_seconds(found[key])}"
    yield "took", _seconds(found["duration"])


def _seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
