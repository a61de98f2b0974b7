"""Who may call the API."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from pydantic import SecretStr

from slb.api.application import make_api, make_data_api
from slb.api.auth import api_rule, guard, is_literal_host, is_loopback
from slb.api.connection import Rules
from slb.api.parts import ApiParts
from slb.api.runner import make_runner
from slb.errors import Refused
from slb.tokens import Keyring
from tests.unit.api.conftest import Api, ApiMaker

TOKEN = "open sesame"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_peers(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["", "10.0.0.1", "::", "::ffff:10.0.0.1", "localhost"])
def test_other_peers(address: str) -> None:
    assert not is_loopback(address)


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8081", "localhost.", "127.0.0.1:8081", "10.0.0.1", "[::1]", "[::1]:8081"]
)
def test_hosts_that_need_no_name_server(host: str) -> None:
    assert is_literal_host(host)


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "[::1]x", "127.1"]
)
def test_hosts_that_others_may_own(host: str) -> None:
    assert not is_literal_host(host)


async def test_without_a_token_programs_of_this_machine_may_call(api: Api) -> None:
    assert (await api.call("GET", "/status")).status == 200
    assert (await api.call("GET", "/status", headers={"Host": f"localhost:{api.port}"})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"X-Forwarded-Prefix": "/x"},
        {"Forwarded": "for=10.0.0.1"},
        {"Via": "1.1 front"},
        {"X-Real-IP": "10.0.0.1"},
        {"X-Client-IP": "10.0.0.1"},
        {"Client-IP": "10.0.0.1"},
        {"True-Client-IP": "10.0.0.1"},
        {"CF-Connecting-IP": "10.0.0.1"},
        {"Fastly-Client-IP": "10.0.0.1"},
        {"X-Cluster-Client-IP": "10.0.0.1"},
        {"X-Envoy-External-Address": "10.0.0.1"},
        {"X-Original-Forwarded-For": "10.0.0.1"},
        {"X-Forwarded": "for=10.0.0.1"},
        {"Forwarded-For": "10.0.0.1"},
        {"X-Original-Host": "slb.example"},
        {"X-Original-URL": "/register"},
        {"X-Rewrite-URL": "/register"},
        {"CDN-Loop": "front"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_without_a_token_nothing_that_borrows_the_loopback_may(api: Api, headers: dict[str, str]) -> None:
    before = await api.stored()
    answer = await api.call("POST", "/register", {"path": "/p1", "target": "10.0.0.1"}, headers=headers)
    assert (answer.status, answer.json["error"]) == (403, "forbidden")
    assert "SLB_API_TOKEN" in answer.json["detail"]
    assert await api.stored() == before


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site"])
async def test_a_second_header_hides_no_foreign_page(api: Api, name: str) -> None:
    good = {"Origin": f"http://127.0.0.1:{api.port}", "Sec-Fetch-Site": "same-origin"}[name]
    bad = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}[name]
    head = f"GET /status HTTP/1.1\r\nHost: 127.0.0.1:{api.port}\r\n{name}: {good}\r\n{name}: {bad}\r\n"
    assert (await api.raw(f"{head}Connection: close\r\n\r\n".encode())).split(b" ")[1] in (b"400", b"403")


async def test_the_apis_own_pages_may_call_it(api: Api) -> None:
    headers = {"Origin": f"http://127.0.0.1:{api.port}", "Sec-Fetch-Site": "same-origin"}
    assert (await api.call("GET", "/status", headers=headers)).status == 200


async def test_a_request_without_a_host_is_refused(api: Api) -> None:
    assert (await api.raw(b"GET /status HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 403 ")


async def test_the_refusal_to_other_machines_names_the_setting() -> None:
    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return ("10.0.0.9", 5) if name == "peername" else default

    async def handler(_: web.Request) -> web.Response:
        raise AssertionError("must not be reached")

    request = make_mocked_request("GET", "/status", {"Host": "127.0.0.1"}, transport=Transport())
    with pytest.raises(Refused, match=r"api_token \(SLB_API_TOKEN\)") as caught:
        await guard(api_rule, lambda: Keyring("", {}), (), lambda _: ("read",))(request, handler)
    assert caught.value.reason.status == 403


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xff"],
)
async def test_with_a_token_it_is_asked_for(serve: ApiMaker, authorization: str | None) -> None:
    api = await serve(settings={"api_token": SecretStr(TOKEN)})
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = await api.call("GET", "/status", headers=headers)
    assert (answer.status, answer.json["error"]) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert TOKEN not in answer.body.decode()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_its_holder_may_come_from_anywhere(serve: ApiMaker, scheme: str) -> None:
    api = await serve(settings={"api_token": SecretStr(TOKEN)})
    headers = {"Authorization": f"{scheme} {TOKEN}", "Host": "slb.example", "X-Forwarded-For": "10.0.0.1"}
    assert (await api.call("GET", "/status", headers=headers)).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_are_open_to_everybody(serve: ApiMaker, path: str) -> None:
    api = await serve(settings={"api_token": SecretStr(TOKEN)})
    assert (await api.call("GET", path, headers={"Host": "front.example", "Via": "1.1 front"})).status == 200


async def test_probes_of_the_data_listener_are_open_and_its_registration_is_not(serve: ApiMaker) -> None:
    api = await serve(make_data_api, settings={"api_token": SecretStr(TOKEN)})
    assert (await api.call("GET", "/_slb/healthz")).status == 200
    assert (await api.call("GET", "/_slb/readyz")).status == 200
    assert (await api.call("POST", "/register", {})).status == 401


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_without_a_token_the_data_listener_takes_no_registrations(data_api: Api, method: str) -> None:
    """Behind nginx's plain `proxy_pass` the world comes from loopback, with nothing that betrays it."""
    before = await data_api.stored()
    answer = await data_api.call(method, "/register", {"path": "/p1", "target": "10.0.0.1"})
    assert (answer.status, answer.json["error"]) == (403, "forbidden")
    assert "API listener" in answer.json["detail"]
    assert "api_token (SLB_API_TOKEN)" in answer.json["detail"]
    assert await data_api.stored() == before


@pytest.mark.parametrize("headers", [{"Origin": "http://slb.example"}, {"Sec-Fetch-Site": "same-origin"}])
async def test_no_page_registers_by_the_data_listener_not_even_with_the_token(
    serve: ApiMaker, headers: dict[str, str]
) -> None:
    """Pages that upstreams serve through slb have the data listener's origin."""
    api = await serve(make_data_api, settings={"api_token": SecretStr(TOKEN)})
    sent = {"Authorization": f"Bearer {TOKEN}", "Host": "slb.example"}
    body = {"path": "/p1", "target": "10.0.0.1"}
    answer = await api.call("POST", "/register", body, headers={**sent, **headers})
    assert (answer.status, answer.json["error"]) == (403, "forbidden")
    assert (await api.call("POST", "/register", body, headers=sent)).status == 200


@pytest.mark.parametrize("make", [make_api, make_data_api])
@pytest.mark.parametrize("path", ["/register", "/nowhere"])
async def test_no_body_is_asked_for_that_is_refused(serve: ApiMaker, make: Any, path: str) -> None:
    api = await serve(make, settings={"api_token": SecretStr(TOKEN)})
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    answer = await api.raw(head.encode())
    assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 404 "))
    assert b"100 Continue" not in answer
    assert b"Connection: close" in answer


async def test_no_body_is_asked_for_where_there_is_no_endpoint(api: Api) -> None:
    head = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert (await api.raw(head)).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/routes", "/instances", "/nowhere", "/healthz/x"])
async def test_all_else_is_guarded(serve: ApiMaker, path: str) -> None:
    api = await serve(settings={"api_token": SecretStr(TOKEN)})
    assert (await api.call("GET", path)).status == 401


@pytest.mark.parametrize("token", [None, SecretStr(TOKEN)])
async def test_a_unix_sockets_peer_is_let_in_by_the_files_rights_alone(
    parts: ApiParts, tmp_path: Path, token: SecretStr | None
) -> None:
    """It is a worker's, for its supervisor, which has no token's secret, but hashes at most."""
    parts.settings = parts.settings.model_copy(update={"api_token": token})
    runner = make_runner(make_api(parts), Rules(parts.settings))
    await runner.setup()
    where = str(tmp_path / "s")
    await web.UnixSite(runner, where).start()
    connector = aiohttp.UnixConnector(where)
    async with aiohttp.ClientSession(connector=connector) as session, session.get("http://slb/status") as reply:
        assert reply.status == 200
    await runner.cleanup()


async def test_two_hosts_are_no_host(api: Api) -> None:
    answer = await api.raw(
        b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert answer.split(b" ")[1] in (b"400", b"403")
