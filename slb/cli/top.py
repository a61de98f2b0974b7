"""`slb top`: the whole fleet in a terminal, from any of its instances."""

import sys
from importlib.util import find_spec

import typer

from slb.cli.client import ApiClient
from slb.cli.options import DEFAULT_URL, CaOption, Misused, TokenOption, UrlOption
from slb.cli.status import status

_MISSING = "slb: slb top needs textual: pip install 'slb[tui]'; this is slb status --watch"


def top(url: UrlOption = DEFAULT_URL, token: TokenOption = None, ca: CaOption = None) -> None:
    """The whole fleet as it changes: routes, upstreams, queues, jobs, instances. Keys: 1 to 5 or Tab choose what,
    s sorts by the next column, r turns the order round, / filters, f freezes, e explains, d drains, q ends."""
    if find_spec("textual") is None:
        typer.echo(_MISSING, err=True)
        status(watch=True, url=url, token=token, ca=ca)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Misused("slb top needs a terminal; slb status --watch prints into a pipe")
    from slb.cli.top_app import TopApp

    client = ApiClient(url, token, ca)
    client.call("GET", "/status")  # an address or a token that is wrong is one line, and no screen
    TopApp(client).run()
