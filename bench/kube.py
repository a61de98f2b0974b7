"""A Kubernetes API server for the bench, in a process of its own: `python -m bench.kube PORT SERVICES PODS`.

It lists and watches the EndpointSlices of the services `s0`, `s1` and so on. A pod is changed by
`POST /change?service=3&pod=7&to=draining`: to `draining`, `gone`, or an address, which is a pod that has come."""

import asyncio
import json
import sys
from typing import Any

from aiohttp import web

SLICES = "/apis/discovery.k8s.io/v1/namespaces/ml/endpointslices"


class Cluster:
    def __init__(self, services: int, pods: int) -> None:
        self._version = 1000
        self._slices = [_slice(service, pods) for service in range(services)]
        self._log: list[tuple[int, bytes]] = []
        self._news = asyncio.Condition()

    async def listed(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watched(request)
        first, most = int(request.query.get("continue", "0")), int(request.query.get("limit", "500"))
        end = first + most
        more = {"continue": str(end)} if end < len(self._slices) else {}
        metadata = {"resourceVersion": str(self._version), **more}
        return web.json_response({"metadata": metadata, "items": self._slices[first:end]})

    async def _watched(self, request: web.Request) -> web.StreamResponse:
        reply, since = web.StreamResponse(), int(request.query["resourceVersion"])
        await reply.prepare(request)
        while True:
            async with self._news:
                while self._version <= since:
                    await self._news.wait()
            due, since = [line for number, line in self._log if number > since], self._version
            await reply.write(b"".join(due))

    async def changed(self, request: web.Request) -> web.Response:
        service, pod, to = int(request.query["service"]), int(request.query["pod"]), request.query["to"]
        written = self._slices[service]
        endpoints = {each["targetRef"]["uid"]: each for each in written["endpoints"]}
        uid = f"{service}-{pod}"
        if to == "gone":
            endpoints.pop(uid, None)
        elif to == "draining":
            endpoints[uid]["conditions"] = {"ready": False, "serving": True, "terminating": True}
        else:
            endpoints[uid] = _endpoint(service, pod, to)
        async with self._news:
            self._version += 1
            metadata = {**written["metadata"], "resourceVersion": str(self._version)}
            self._slices[service] = {**written, "metadata": metadata, "endpoints": list(endpoints.values())}
            event = {"type": "MODIFIED", "object": self._slices[service]}
            self._log = [*self._log[-1000:], (self._version, json.dumps(event).encode() + b"\n")]
            self._news.notify_all()
        return web.json_response({})


def _slice(service: int, pods: int) -> dict[str, Any]:
    endpoints = [_endpoint(service, pod, address(service, pod)) for pod in range(pods)]
    metadata = {"namespace": "ml", "name": f"s{service}-1", "labels": {"kubernetes.io/service-name": f"s{service}"}}
    ports = [{"name": "http", "port": 8000, "protocol": "TCP"}]
    return {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}


def address(service: int, pod: int) -> str:
    """Of a pod of the beginning."""
    return f"10.{service // 250}.{service % 250}.{pod + 1}"


def _endpoint(service: int, pod: int, where: str) -> dict[str, Any]:
    return {
        "addresses": [where],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "namespace": "ml", "name": f"s{service}-{pod}", "uid": f"{service}-{pod}"},
        "nodeName": f"node-{pod % 20}",
        "zone": f"zone-{pod % 3}",
    }


def main() -> None:
    port, services, pods = map(int, sys.argv[1:])
    cluster, app = Cluster(services, pods), web.Application()
    app.router.add_get(SLICES, cluster.listed)
    app.router.add_post("/change", cluster.changed)
    app.router.add_get("/healthz", lambda _: _ok())
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


async def _ok() -> web.Response:
    return web.Response(text="ok")


if __name__ == "__main__":
    main()
