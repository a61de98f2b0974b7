"""Cookies as the proxy and the library read them: both must find the same key in a request."""

import re

_BLANKS = re.compile(r";[ \t]++")


def cookie(header: str, name: str) -> str:
    """The first cookie `name` in the value of a Cookie header, without its quotes; empty where there is none (RFC
    6265, 4.2). `http.cookies` gives up at the first pair that is not as it should be, or raises.

    Three passes over the header, whatever stands in it.
    """
    pairs = _BLANKS.sub(";", f";{header}")
    _, _, found = pairs.partition(f";{name}=")
    return found.partition(";")[0].strip(' \t"')
