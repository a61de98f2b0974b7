"""`slb discover kubernetes`: an instance that writes the pods of services to the routes, and takes no traffic."""

from pathlib import Path
from typing import Annotated

import typer

from slb.cli import options
from slb.cli.options import Misused
from slb.cli.serving import serve_with


def follow_services(
    context: typer.Context,
    route: Annotated[
        list[str],
        typer.Option(
            help="PATH=service/NAME:PORT; once for each. PORT: a port's name or number; https+service/... for TLS."
        ),
    ],
    namespace: Annotated[str | None, typer.Option(help="Of the services [the pod's own].")] = None,
    selector: Annotated[
        str | None, typer.Option(help="A label selector for their EndpointSlices.", show_default=False)
    ] = None,
    api_server: Annotated[str | None, typer.Option(help="URL of the API server [the pod's own cluster].")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="The token to show there [the pod's own].", readable=False)
    ] = None,
    ca: Annotated[
        Path | None, typer.Option(help="PEM file that the API server is verified by [the pod's].", readable=False)
    ] = None,
    family: Annotated[str | None, typer.Option(help="Of pods with both addresses: ipv4 or ipv6 [ipv4].")] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Read slb/slots and slb/weight of pods and services.")
    ] = False,
    empty_grace: Annotated[
        str | None, typer.Option(help="How long an empty answer has to stand to be believed [30s].")
    ] = None,
    api: Annotated[str | None, typer.Option(help="HOST:PORT for the API [127.0.0.1:8081].")] = None,
    redis_url: options.RedisOption = None,
    config: options.ConfigOption = None,
    data_dir: options.DataDirOption = None,
    name: Annotated[str | None, typer.Option(help="What this instance is called in /instances.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error [info].")] = None,
    end_with_stdin: options.EndWithStdin = False,
) -> int:
    """Follow services of Kubernetes, and serve no traffic: `slb serve --roles discovery` with
    `[discovery.kubernetes]`."""
    given = {
        "routes": dict(options.key_value(each, ", such as /models/flux=service/flux:http") for each in route),
        "namespace": namespace,
        "selector": selector,
        "api_server": api_server,
        "token_file": token_file,
        "ca": ca,
        "family": family,
        "annotations": annotations or None,
    }
    if len(given["routes"]) < len(route):  # type: ignore[arg-type]
        raise Misused("--route: a path stands there twice")
    kubernetes = {f"discovery_kubernetes_{setting}": value for setting, value in given.items()}
    kept = {
        name: context.params[name] for name in ("api", "redis_url", "data_dir", "name", "log_level", "empty_grace")
    }
    kept["discovery_empty_grace"] = kept.pop("empty_grace")
    return serve_with({**kept, **kubernetes, "roles": "discovery"}, config, end_with_stdin)
