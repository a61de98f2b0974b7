"""`slb serve`, `slb upstream`, `slb demo`: the commands that run until they are stopped."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from slb.cli import options
from slb.errors import ConfigError

_DIRECT_QUEUE = 10
"""Direct calls that may wait at a stand-in for a GPU server, unless it is set."""


def serve(
    context: typer.Context,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT for traffic [127.0.0.1:8080].")] = None,
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve traffic [1].")] = None,
    roles: Annotated[
        str | None,
        typer.Option(
            help="What this process does: proxy, quota, jobs, discovery, extproc, dns, with commas [proxy]."
        ),
    ] = None,
    config: options.ConfigOption = None,
    access_log: Annotated[str | None, typer.Option(help="all, errors, off, or a share such as 0.01 [all].")] = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    zone: Annotated[str | None, typer.Option(help="The zone this instance is in.")] = None,
    drain_timeout: Annotated[str | None, typer.Option(help="How long requests in flight may take [30s].")] = None,
    tls_certificates: Annotated[
        list[str] | None,
        typer.Option(
            "--tls-certificate", help="CERTIFICATE:KEY, PEM files; once for each pair.", show_default=False
        ),
    ] = None,
    api_tls_certificates: Annotated[
        list[str] | None,
        typer.Option("--api-tls-certificate", help="CERTIFICATE:KEY for the API listener.", show_default=False),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, console or auto [auto].")] = None,
    takeover: options.TakeoverOption = None,
    end_with_stdin: options.EndWithStdin = False,
    no_revive: options.NoRevive = False,
) -> int:
    """Balance traffic. Every flag is also a variable, such as SLB_LISTEN for --listen, and a line in the TOML file;
    flags win. There --redis is redis_url, and --tls-certificate is tls_certificates."""
    return serve_with(context.params, config, end_with_stdin, revive=not no_revive)


def serve_with(given: Mapping[str, Any], config: Path | None, end_with_stdin: bool, revive: bool = True) -> int:
    """Serve with the settings of the command line, the environment and the file; the exit code. `given`: a
    command's parameters by name, among them some that are no settings."""
    from slb.config import Settings
    from slb.loading import load_settings
    from slb.observe.log import configure_logging
    from slb.reload import Source

    is_typed = {name for name, value in given.items() if value is not None and value != ()}
    flags = {name: given[name] for name in is_typed & Settings.model_fields.keys()}
    source = Source(lambda note: load_settings(flags, os.environ, config, note))
    try:
        settings = source.load()
    except ConfigError:
        options.warn_of_variables()
        raise
    configure_logging(settings.log_level, settings.log_format)
    options.log_variables()
    from slb.running import run
    from slb.supervisor import supervise

    if not settings.calls_upstreams:
        from slb.router import RouterApp

        return run(settings, source, end_with_stdin, make=RouterApp)
    if settings.workers > 1:
        return supervise(settings, source, end_with_stdin)
    return run(settings, source, end_with_stdin, revive)


def jobs(
    context: typer.Context,
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    config: options.ConfigOption = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    zone: Annotated[str | None, typer.Option(help="The zone this instance is in.")] = None,
    drain_timeout: Annotated[str | None, typer.Option(help="How long jobs that run may take [30s].")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    takeover: options.TakeoverOption = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """Dispatch jobs, and serve no traffic: `slb serve --roles jobs` in short."""
    if context.invoked_subcommand is not None:
        return 0
    options.check_not_alone(context, "slb serve --roles jobs")
    return serve_with({**context.params, "roles": "jobs"}, config, end_with_stdin)


def dns(
    listen: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT, UDP and TCP; once for each [127.0.0.1:5353].", show_default=False),
    ] = None,
    zone_name: Annotated[
        list[str] | None,
        typer.Option(
            help="A name that stands for all instances; once for each [slb.internal].", show_default=False
        ),
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="How long answers may be kept [5s].")] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(help="Clients that get long answers over UDP [private ones].", show_default=False),
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option(help="NETWORK=ZONE: whose clients get that zone first.", show_default=False),
    ] = None,
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    config: options.ConfigOption = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    takeover: options.TakeoverOption = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """Answer DNS with the addresses of the instances that live and are ready, and serve no traffic."""
    given = {
        "dns_listen": listen,
        "dns_zones": zone_name,
        "dns_ttl": ttl,
        "dns_networks": network,
        "dns_views": view,
        "api": api,
        "redis_url": redis_url,
        "data_dir": data_dir,
        "name": name,
        "log_level": log_level,
        "takeover": takeover,
    }
    return serve_with(
        {**{key: value for key, value in given.items() if value}, "roles": "dns"}, config, end_with_stdin
    )


def ext_proc(
    listen: Annotated[str | None, typer.Option(help="HOST:PORT where Envoys ask [127.0.0.1:9002].")] = None,
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    config: options.ConfigOption = None,
    access_log: Annotated[str | None, typer.Option(help="all, errors, off, or a share such as 0.01 [all].")] = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    zone: Annotated[str | None, typer.Option(help="The zone this instance is in.")] = None,
    drain_timeout: Annotated[str | None, typer.Option(help="How long requests in flight may take [30s].")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    log_format: Annotated[str | None, typer.Option(help="json, console or auto [auto].")] = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """Choose upstreams for Envoys, and serve no traffic: `slb serve --roles extproc` in short."""
    given = {"api": api, "redis_url": redis_url, "data_dir": data_dir, "name": name, "zone": zone}
    given |= {"access_log": access_log, "drain_timeout": drain_timeout, "log_level": log_level}
    given |= {"log_format": log_format, "extproc_listen": listen, "roles": "extproc"}
    return serve_with(given, config, end_with_stdin)


def worker() -> int:
    """One worker of `slb serve --workers`; its supervisor sends it its settings on stdin."""
    from slb.supervisor import run_worker

    return run_worker()


def upstream(
    listen: Annotated[str, typer.Option(help="HOST:PORT; port 0 takes a free one.")] = "127.0.0.1:0",
    name: Annotated[str | None, typer.Option(help="What its answers call it [its address].")] = None,
    service_time: Annotated[str, typer.Option(help="How long a request takes, such as 1s or 250ms.")] = "0",
    slots: Annotated[int, typer.Option(min=1, help="Requests served at the same time; others wait.")] = 1,
    direct_queue: Annotated[
        int | None,
        typer.Option(min=0, help="Be a GPU server: so many direct calls may wait [10].", show_default=False),
    ] = None,
    is_async: Annotated[
        bool, typer.Option("--async", help="Be a GPU server that answers /generate before it is done.")
    ] = False,
    register: Annotated[
        list[str] | None,
        typer.Option(help="URL of an slb to register with; once for each that may be asked.", show_default=False),
    ] = None,
    path: Annotated[str, typer.Option(help="The route to register for.")] = "/",
    ttl: Annotated[
        str, typer.Option(help="Be taken out after this long, 5s to 24h, without a renewal; 0 is never.")
    ] = "10s",
    advertise: Annotated[str | None, typer.Option(help="HOST:PORT to register [where it listens].")] = None,
    grace: Annotated[str, typer.Option(help="Leaving: stay until no request has come for this long.")] = "500ms",
    token: Annotated[
        str | None, typer.Option(envvar="SLB_TOKEN", help="The API token.", show_default=False)
    ] = None,
    ca: options.CaOption = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """A stand-in upstream that behaves like one GPU: a line of requests in front of a few slots."""
    from slb.cli.client import environment_token, url_parts
    from slb.standin import Manner, Place, run_stand_in

    if is_async and direct_queue is None:
        direct_queue = _DIRECT_QUEUE
    manner = Manner(
        name or "",
        options.duration_option("service-time", service_time),
        slots,
        options.duration_option("grace", grace),
        direct_queue,
        is_async,
    )
    seconds = options.ttl_option(ttl) if options.duration_option("ttl", ttl) else None
    if register:
        for url in register:
            url_parts(url, "--register")
        token = token or environment_token()
    return run_stand_in(Place(listen, register or (), path, advertise, token, ca, seconds), manner, end_with_stdin)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave it running at the end, until Ctrl-C.")] = False,
) -> int:
    """Two instances, three upstreams, a Redis that is killed: watch the traffic go on."""
    from slb.demo import run_demo

    return run_demo(keep)
