"""The body of every answer that slb gives a client itself, whichever way the client's traffic takes."""

import json
import re
from typing import Any

import orjson

from slb.errors import Reason

_USABLE_ID = re.compile(r"[!-~]{1,128}+")


def usable_id(given: str) -> str:
    """A request id that somebody else has chosen; empty where it is too long to be repeated, or no word."""
    return given if _USABLE_ID.fullmatch(given) else ""


def refusal_body(reason: Reason, detail: str, request_id: str, tells_all: bool) -> bytes:
    """`{"error", "detail", "request_id"}`, and a line feed. `detail` may name upstreams, and is shown only with
    `tells_all` (setting `client_detail`); else the reason's public sentence."""
    shown = detail if tells_all or not reason.public else reason.public
    return orjson.dumps({"error": reason.name, "detail": shown, "request_id": request_id}) + b"\n"


def dumped(data: Any) -> bytes:
    """JSON. Texts in Redis need not be UTF-8, and numbers there may have any length: characters that are not become
    question marks. What is no JSON otherwise is written as a list."""
    try:
        return orjson.dumps(data, default=list)
    except orjson.JSONEncodeError:
        return json.dumps(data, ensure_ascii=False, default=list).encode("utf-8", "replace")
