"""A strict reader of HTTP/1.1 messages: reports what is wrong with each, and never guesses.

Written against RFC 9112, not against slb: what slb passes on must please this.
"""

import asyncio
import re
from dataclasses import dataclass, field

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = re.compile(_TOKEN + rb" (?:/[\x21-\x7e]*|\*) HTTP/1\.1")
_STATUS_LINE = re.compile(rb"HTTP/1\.1 [1-5][0-9][0-9] [\t\x20-\x7e\x80-\xff]*")
_FIELD = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*")
_HOP_BY_HOP = (b"keep-alive", b"proxy-connection", b"proxy-authorization", b"http2-settings", b"trailer")
_ONCE = (b"host", b"content-length", b"transfer-encoding", b"x-request-id", b"traceparent", b"x-forwarded-for")
_SHADOWS = re.compile(rb"content_length|transfer_encoding|x[-_]forwarded_.*|x_forwarded[-_].*")


@dataclass
class Message:
    """`faults`: what a strict reader objects to. `whole`: its end was seen."""

    first: bytes
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key.lower() == name]

    @property
    def status(self) -> int:
        return int(self.first[9:12])


def read_head(raw: bytes, first_line: re.Pattern[bytes]) -> Message:
    """`raw` without its empty line."""
    first, *lines = raw.split(b"\r\n")
    message = Message(first)
    if not first_line.fullmatch(first):
        message.faults.append(f"first line {first[:80]!r}")
    for line in lines:
        match = _FIELD.fullmatch(line)
        if match is None:
            message.faults.append(f"field {line[:80]!r}")
        else:
            message.fields.append((match[1], match[2]))
    message.faults += _framing_faults(message)
    return message


def _framing_faults(message: Message) -> list[str]:
    lengths, codings = message.all(b"content-length"), message.all(b"transfer-encoding")
    faults = []
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]+", each) for each in lengths):
        faults.append(f"content-length {lengths}")
    if codings and ([each.lower() for each in codings] != [b"chunked"] or lengths):
        faults.append(f"transfer-encoding {codings} beside content-length {lengths}")
    return faults


async def read_request(reader: asyncio.StreamReader) -> Message | None:
    """The head of the next request as an origin gets it from a proxy; None at the end of the connection."""
    raw = await _until_empty_line(reader)
    if raw is None:
        return None
    message = read_head(raw, _REQUEST_LINE)
    for name in _ONCE:
        if len(message.all(name)) > 1:
            message.faults.append(f"{name!r} stands twice")
    for name, _ in message.fields:
        if name.lower() in _HOP_BY_HOP or _SHADOWS.fullmatch(name.lower()):
            message.faults.append(f"{name!r} went past its hop")
    for name in (b"host", b"via", b"x-request-id", b"traceparent", b"x-forwarded-for"):
        if not message.all(name):
            message.faults.append(f"no {name!r}")
    return message


async def read_reply(reader: asyncio.StreamReader, to_head: bool = False) -> Message | None:
    """The next reply, its body too; None at the end of the connection. One that is cut off is not `whole`."""
    try:
        raw = await _until_empty_line(reader)
    except asyncio.IncompleteReadError as error:
        return Message(error.partial)
    if raw is None:
        return None
    message = read_head(raw, _STATUS_LINE)
    if not message.faults:
        bodiless = to_head or message.status < 200 or message.status in (204, 304)
        await read_body(reader, message, bodiless)
    return message


async def read_body(reader: asyncio.StreamReader, message: Message, bodiless: bool) -> None:
    """Read on to the end of the message's body, as far as it comes."""
    try:
        if bodiless:
            pass
        elif message.all(b"transfer-encoding"):
            await _read_chunks(reader, message)
        elif lengths := message.all(b"content-length"):
            message.body = await reader.readexactly(int(lengths[0]))
        elif message.first.startswith(b"HTTP/"):
            message.faults.append("a reply that only ends with the connection")
        message.whole = not message.faults
    except (asyncio.IncompleteReadError, ConnectionError):
        return


async def _until_empty_line(reader: asyncio.StreamReader) -> bytes | None:
    try:
        return (await reader.readuntil(b"\r\n\r\n"))[:-4]
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    except ConnectionError:
        return None


async def _read_chunks(reader: asyncio.StreamReader, message: Message) -> None:
    while True:
        size = (await reader.readuntil(b"\r\n"))[:-2]
        if not re.fullmatch(rb"[0-9a-fA-F]+", size):
            message.faults.append(f"chunk size {size[:40]!r}")
            return
        if int(size, 16) == 0:
            break
        piece = await reader.readexactly(int(size, 16) + 2)
        message.body += piece[:-2]
        if not piece.endswith(b"\r\n"):
            message.faults.append("a chunk that does not end in CRLF")
            return
    while (line := (await reader.readuntil(b"\r\n"))[:-2]) != b"":
        if not _FIELD.fullmatch(line):
            message.faults.append(f"trailer {line[:80]!r}")
