"""A real etcd and kube-apiserver, where the variable SLB_KUBE_APISERVER names the latter; etcd is on the PATH."""

import asyncio
import os
import shutil
import signal
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientError, ClientSession
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.certificates import Authority
from tests.support.ports import closed_port
from tests.support.waiting import within

APISERVER = os.environ.get("SLB_KUBE_APISERVER", "")
ETCD = shutil.which("etcd")
ADMIN, WATCHER = "token-of-the-admin", "token-of-the-watcher"
_SLICES = "/apis/discovery.k8s.io/v1beta1/namespaces/ml/endpointslices"
_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/ml"


class RealKube:
    """1.20 serves EndpointSlices as v1beta1 alone; `put` writes those of tests/support/kube_api.py so."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self._directory = directory
        self._client, self._peer, self._port = _port(), _port(), _port()
        self._authority = authority
        certificate, _, key = authority.issue("apiserver", "localhost", "127.0.0.1").partition(":")
        self._certificate, self._key = certificate, key
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"https://localhost:{self._port}"
        (directory / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{WATCHER},watcher,2\n{"none"},nobody,3\n'
        )
        (directory / "accounts.key").write_bytes(_new_key())

    async def start(self) -> None:
        at, where = f"http://127.0.0.1:{self._client}", self._directory
        self._run("etcd", [
            *(str(ETCD), "--data-dir", str(where / "etcd"), "--log-level", "error"),
            *("--listen-client-urls", at, "--advertise-client-urls", at),
            *("--listen-peer-urls", f"http://127.0.0.1:{self._peer}"),
        ])  # fmt: skip
        self.start_apiserver()
        await self.ready()
        made = {"metadata": {"name": "ml"}}
        await self._call("POST", "/api/v1/namespaces", made)
        rules = [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
        ]
        await self._call("POST", f"{_RBAC}/roles", {"metadata": {"name": "slb"}, "rules": rules})
        of = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "slb"}
        to = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "watcher"}]
        body = {"metadata": {"name": "slb"}, "roleRef": of, "subjects": to}
        await self._call("POST", f"{_RBAC}/rolebindings", body)

    def start_apiserver(self) -> None:
        key = str(self._directory / "accounts.key")
        self._run("apiserver", [
            *(APISERVER, f"--etcd-servers=http://127.0.0.1:{self._client}", "--bind-address=127.0.0.1"),
            *(f"--secure-port={self._port}", f"--cert-dir={self._directory}"),
            *(f"--tls-cert-file={self._certificate}", f"--tls-private-key-file={self._key}"),
            *("--authorization-mode=RBAC", f"--token-auth-file={self._directory / 'tokens.csv'}"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/24"),
            *("--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"),
            "--feature-gates=EndpointSliceTerminatingCondition=true,EndpointSliceNodeName=true",
        ])  # fmt: skip

    def _run(self, name: str, command: list[str]) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    async def ready(self) -> None:
        async with within(60.0), self._session() as session:
            while True:
                try:
                    async with session.get(f"{self.url}/readyz") as reply:
                        if reply.status == 200:
                            return
                except (ClientError, OSError):
                    assert self._processes["apiserver"].poll() is None, "it has ended: see apiserver.log"
                await asyncio.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        self._processes["apiserver"].send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._processes["apiserver"].wait()

    def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    async def put(self, written: Mapping[str, Any]) -> None:
        endpoints = [
            {name: value for name, value in each.items() if name != "zone"}
            | {"topology": {"topology.kubernetes.io/zone": each["zone"]}}
            for each in written["endpoints"]
        ]
        name = written["metadata"]["name"]
        try:
            await self._call("POST", _SLICES, {**written, "endpoints": endpoints})
        except FileExistsError:
            await self._call("PUT", f"{_SLICES}/{name}", {**written, "endpoints": endpoints})

    async def delete(self, name: str) -> None:
        await self._call("DELETE", f"{_SLICES}/{name}")

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        async with self._session() as session, session.request(method, self.url + path, json=body) as reply:
            if reply.status == 409:
                raise FileExistsError(path)
            assert reply.status in (200, 201), await reply.text()

    def _session(self) -> ClientSession:
        from aiohttp import TCPConnector

        context: ssl.SSLContext = self._authority.client()
        return ClientSession(headers={"Authorization": f"Bearer {ADMIN}"}, connector=TCPConnector(ssl=context))


def _port() -> int:
    return int(closed_port().rpartition(":")[2])


def _new_key() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form, plain = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, form, plain)


@asynccontextmanager
async def real_kube(directory: Path, authority: Authority) -> AsyncIterator[RealKube]:
    made = RealKube(directory, authority)
    try:
        await made.start()
        yield made
    finally:
        made.close()
