"""A service of Kubernetes, watched by one process for itself: for the client library, without Redis."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

from slb.discovery.kube_access import access_of
from slb.discovery.kubernetes import Kubernetes, target_of
from slb.discovery.pending import Attributes, WriteTiming
from slb.discovery.settled import settled
from slb.discovery.slices import Family


class Service:
    """Its pods, for `Session(upstreams=...)`: `Service("service/flux:http")` in a pod of the cluster. What is not
    given is as every pod has it. Changes are collected for `debounce` seconds; an empty answer is
    believed after `empty_grace`. Raises ConfigError."""

    def __init__(
        self,
        target: str,
        *,
        namespace: str = "",
        selector: str = "",
        api_server: str = "",
        token_file: str | Path | None = None,
        ca: str | Path | None = None,
        family: Family = "ipv4",
        annotations: bool = False,
        debounce: float = 2.0,
        empty_grace: float = 30.0,
        rng: Random | None = None,
    ) -> None:
        token, authority = (None if file is None else Path(file) for file in (token_file, ca))
        access = access_of(api_server, namespace, token, authority)
        wanted = [target_of("/", target, family)]
        (self._source,) = Kubernetes(access, wanted, rng or Random(), selector, annotations).sources
        self._timing = WriteTiming(debounce=debounce, empty_grace=empty_grace)

    @property
    def trouble(self) -> str:
        """Why the API server does not answer; empty where it does."""
        return self._source.asked.trouble

    def __aiter__(self) -> AsyncIterator[dict[str, Attributes]]:
        return settled(self._source, self._timing)
