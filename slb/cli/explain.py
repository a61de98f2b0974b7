"""`slb explain`: why a request went where it went, or was refused; or where one of a path would go now."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from slb.cli.client import ApiClient, ApiError
from slb.cli.console import Rows, show, show_json, show_pairs
from slb.cli.events import printable
from slb.cli.options import DEFAULT_URL, CaOption, JsonOption, Misused, TokenOption, UrlOption
from slb.errors import NO_ROUTE, UNKNOWN_REQUEST

_DECIDED = {
    "policy": "the route's policy; it needs no slot",
    "redis": "Redis, for the whole fleet",
    "here": "this instance alone: Redis did not answer in time",
    "refused": "slb, before it came to any upstream",
}
_COLUMNS = ("score", "in flight here", "in the fleet", "slots", "weight", "zone", "why")
_MENDS = {
    UNKNOWN_REQUEST.name: "each remembers its last ones; X-Request-Id of the answer and request_id of the access "
    "log have the id; a path begins with /",
    NO_ROUTE.name: "slb routes shows all",
}
_OUTCOMES = {"sent": "is sent on", "waits": "waits: all are full"}


def explain(
    what: Annotated[
        str, typer.Argument(metavar="ID|PATH", help="A request's X-Request-Id; or a path, such as /p1/x.")
    ],
    key: Annotated[
        str | None, typer.Option(help="Of a path: the request's key, where its route goes by one.")
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    ca: CaOption = None,
) -> None:
    """Why a request went where it went, or was refused, by its X-Request-Id: asks all instances, each of which
    remembers its last ones. Of a path: where a request would go now, and why not elsewhere."""
    _check_typed(what)
    client = ApiClient(url, token, ca)
    if what.startswith("/"):
        _show_path(_called(client, _query(what, key or "")), as_json)
        return
    if key is not None:
        raise Misused("--key goes with a path")
    answer = _called(client, f"/explain/{quote(what)}")
    if as_json:
        show_json(answer)
        return
    for number, found in enumerate(answer["found"]):
        if number:
            typer.echo()
        show_pairs((name, printable(value)) for name, value in explained(found))
        if found["found_after"] is not None:
            typer.echo(f"\nWhat it found of its route, {_moment(found['found_after'])}:")
            if found["scores_after"] is not None:
                typer.echo(f"Slots in the fleet are as Redis found them, {_when(found['scores_after'])}.")
            _show_found(found)
    last = answer["found"][-1]
    if last["found_after"] is None and last["route"]:
        _show_route(client, last["route"])


def _check_typed(what: str) -> None:
    if not what:
        raise Misused("type a request's X-Request-Id, or a path such as /p1/x")
    if "://" in what:
        path = urlsplit(what).path or "/"
        raise Misused(f"{what!r} is a URL: slb explain {path} says where a request of its path would go")


def _called(client: ApiClient, path: str) -> Any:
    """Raises ApiError, which says what to type instead."""
    try:
        return client.call("GET", path)
    except ApiError as error:
        if (mend := _MENDS.get(error.reason)) is not None:
            raise ApiError(f"{error} ({mend})", error.reason) from None
        raise


def _query(path: str, key: str) -> str:
    return f"/explain?path={quote(path, safe='')}&key={quote(key, safe='', errors='surrogateescape')}"


def _show_route(client: ApiClient, route: str) -> None:
    """What the route's upstreams are like now, where what they were then is not kept."""
    try:
        answer = client.call("GET", _query(route, ""))
    except ApiError as error:
        if error.reason != NO_ROUTE.name:
            raise
        typer.echo(f"\nWhat it found of its route is not kept, and the route {printable(route)} is there no more.")
        return
    typer.echo("\nWhat it found of its route is not kept. As it is now:")
    _show_path(answer, False)


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


def _show_path(answer: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    now = answer["now"]
    show_pairs((name, printable(value)) for name, value in _of_route(answer, now))
    _show_members("now", now["members"], answer["changes"])


def _show_found(found: Mapping[str, Any]) -> None:
    show_pairs((name, printable(value)) for name, value in _of_policy(found))
    _show_members("then", found["members"], {})
    if found["left_off"]:
        typer.echo(f"and {found['left_off']} more upstreams")


def _show_members(when: str, members: Sequence[Mapping[str, Any]], changes: Mapping[str, Any]) -> None:
    if members:
        table = Rows(
            ("upstream", when, *_COLUMNS),
            right=("score", "in flight here", "in the fleet", "slots", "weight"),
            spare=("zone", "weight", "slots", "in the fleet"),
            prose="why",
        )
        for member in members:
            table.add_row(*map(printable, _cells(member, changes.get(member["member"]))))
        show(table)


def _of_route(answer: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    refused = f"is refused: {now['reason']}"
    yield "request", f"{answer['path']}, at {answer['instance']}: {_OUTCOMES.get(now['outcome'], refused)}"
    yield "route", now["route"]
    yield "decided by", _DECIDED.get(now["decided_by"], now["decided_by"])
    yield from _of_policy(now)
    if now["queued"]:
        yield "queued", f"{now['queued']} wait for a slot of its pool"


def _of_policy(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "policy", state["policy"]
    if state["by"]:
        yield "score", state["by"]
    if state["panic"]:
        yield "panic", "too few upstreams are available, and all are used"


def _cells(member: Mapping[str, Any], changed: Mapping[str, Any] | None) -> Iterator[str]:
    yield member["member"]
    yield member["verdict"]
    yield "" if member["score"] is None else f"{member['score']:g}"
    yield str(member["inflight"])
    fleet, capacity = member["fleet"], member["capacity"]
    yield "" if fleet is None else f"{fleet} of {capacity}" if capacity else str(fleet)
    yield str(member["slots"])
    yield str(member["weight"])
    yield member["zone"]
    yield "; ".join(_reasons(member, changed))


def _reasons(member: Mapping[str, Any], changed: Mapping[str, Any] | None) -> Iterator[str]:
    if 0 < member["share"] < 1:
        yield f"has {100 * member['share']:.0f} % of its share so far"
    if member["why"]:
        yield member["why"]
    if changed is not None and (member["verdict"] not in ("next", "eligible") or member["why"]):
        at, by = datetime.fromtimestamp(changed["time"]).astimezone(), changed["by"] or changed["name"]
        detail = f": {changed['detail']}" if changed["detail"] and changed["detail"] not in member["why"] else ""
        yield f"{changed['what']} at {at:%Y-%m-%d %H:%M:%S} by {by}{detail}"


def _moment(found_after: float) -> str:
    if not found_after:
        return "as it came"
    when = "before it came" if found_after < 0 else "later, at its last attempt"
    return f"{_seconds(abs(found_after))} {when}"


def _when(after: float) -> str:
    return f"{_seconds(abs(after))} {'before' if after < 0 else 'after'} it came"


def _seconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"
