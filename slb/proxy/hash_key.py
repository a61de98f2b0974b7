"""Where a request has the key that its route's `hash_key` names."""

from typing import TYPE_CHECKING

from slb.balance.hash_key import cookie, key_finder, parameter
from slb.proxy.fields import FIELDS, field_value

if TYPE_CHECKING:
    from slb.proxy.exchange import Exchange


def _path(_: str, exchange: "Exchange") -> bytes:
    """The normal form: other spellings of a path mean the same."""
    return exchange.line.normal.encode()


def _address(_: str, exchange: "Exchange") -> bytes:
    return exchange.client.peer.client(exchange.head).encode()


def _header(name: str, exchange: "Exchange") -> bytes:
    return field_value(exchange.head.fields, name).encode("latin-1")


def _cookie(name: str, exchange: "Exchange") -> bytes:
    """Of all Cookie lines together: RFC 9113, 8.2.3, lets them be split."""
    lines = exchange.head.fields.split(b"\r\n")
    values = b";".join(FIELDS[line][1] for line in lines if line[:7].lower() == b"cookie:")
    return cookie(values.decode("latin-1"), name).encode("latin-1")


def _query(name: str, exchange: "Exchange") -> bytes:
    return parameter(exchange.line.query[1:], name)


key_of = key_finder({"path": _path, "ip": _address, "header": _header, "cookie": _cookie, "query": _query})
