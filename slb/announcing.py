"""What a process says of itself when it serves, and when it stops."""

import os
import sys

import structlog

from slb import __version__, systemd
from slb.core import Core
from slb.names import join_member
from slb.observe.log import is_readable, json_lines

_log = structlog.get_logger("slb")

_SERVED = {
    "proxy": "traffic",
    "quota": "the quota router",
    "jobs": "jobs",
    "extproc": "Envoys",
    "discovery": "discovery",
}
"""What a role is called in the line of a process that has no listener for traffic."""


def announce(core: Core, is_ready: bool, workers: str = "") -> None:
    """Print one line once everything listens, in the form of the log, for people and for programs that wait for it.
    `is_ready`: whether there is a table to serve."""
    sockets, connection, settings = core.sockets, core.connection, core.settings
    scheme = "https" if settings.tls_certificates else "http"
    traffic = [f"{scheme}://{each}" for each in sockets.data_shown()]
    api = f"{'https' if settings.api_tls_certificates else 'http'}://{sockets.api_shown()}"
    redis = connection.url_shown
    if connection.embedded is not None:
        redis = f"embedded, for this machine only, in {connection.embedded.directory}"
    redis += "" if connection.up else ", which does not answer yet"
    redis += "" if is_ready else ": no routes are known, and every request gets 503 not_ready"
    dns = [join_member("http", *each) for each in sockets.dns_addresses()]
    others = [_SERVED[role] for role in settings.roles if role in _SERVED and not traffic]
    where = " and ".join([*filter(None, [", ".join(traffic)]), *others, *(f"DNS at {each}" for each in dns)])
    where += f", ext_proc {core.extproc_shown}" if core.extproc_shown else ""
    message = f"slb {__version__} serves {where}{workers}, API {api}, Redis: {redis}"
    systemd.notify(READY=1, MAINPID=os.getpid(), STATUS=message)
    if not is_readable(settings.log_format, sys.stderr):
        fields = {"event": "serving", "level": "info", "traffic": traffic, "api": api, "message": message}
        fields |= {"dns": dns} if dns else {}
        fields |= {"extproc": core.extproc_shown} if core.extproc_shown else {}
        message = json_lines(core.bound_fields)(fields).decode().rstrip()
    print(message, flush=True)


def log_stopping(core: Core, connections: int = 0) -> None:
    """One line for each process that stops; an idle one too."""
    settings = core.settings
    at_most = core.drain_delay() + (settings.drain_timeout if settings.calls_upstreams else 0.0)
    hint = "a second Ctrl-C (or SIGTERM) ends it at once"
    core.fleet.note("stopping")
    _log.info("stopping", connections=connections, at_most=at_most, hint=hint)
