"""The key of a request that its route's `hash_key` names."""

from slb.balance.hash_key import cookie, key_finder, parameter
from slb.proxy.request import Request
from slb.upstreams.fields import FIELDS, field_value


def _path(_: str, request: Request) -> bytes:
    """The normal form: other spellings of a path mean the same."""
    return request.line.normal.encode()


def _address(_: str, request: Request) -> bytes:
    return request.peer.client(request.head).encode()


def _header(name: str, request: Request) -> bytes:
    return field_value(request.head.fields, name).encode("latin-1")


def _cookie(name: str, request: Request) -> bytes:
    """All Cookie lines together: RFC 9113, 8.2.3, allows several."""
    lines = request.head.fields.split(b"\r\n")
    values = b";".join(FIELDS[line][1] for line in lines if line[:7].lower() == b"cookie:")
    return cookie(values.decode("latin-1"), name).encode("latin-1")


def _query(name: str, request: Request) -> bytes:
    return parameter(request.line.query[1:], name)


key_of = key_finder({"path": _path, "ip": _address, "header": _header, "cookie": _cookie, "query": _query})
