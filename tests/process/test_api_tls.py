"""The API over TLS: what asks it, what follows its files, what is refused."""

import asyncio
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from slb.quota.client import Router
from tests.process.commands import Commands, Serving
from tests.support.certificates import Authority
from tests.support.valkey import Valkey
from tests.support.waiting import eventually, soon, until

HERE = "127.0.0.1"


async def serve(slb: Commands, valkey: Valkey, authority: Authority, *words: str, token: str = "") -> Serving:
    """With a certificate for this address; it has a table on return."""
    pair = authority.issue("api", HERE)
    env = {"SLB_API_TOKEN": token} if token else {}
    serving = await slb.serve("--api-tls-certificate", pair, *words, redis=valkey.url, env=env)
    assert serving.api.startswith("https://")

    tls = authority.client()  # one, or each look would be a connection of its own

    async def ready() -> int:
        async with slb.session.get(f"{serving.api}/readyz", ssl=tls) as reply:
            return reply.status

    await until(ready, lambda status: status == 200, 20.0, "/readyz")
    return serving


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_commands_and_upstreams_ask_it_by_its_authority(
    slb: Commands, valkey: Valkey, authority: Authority, workers: str
) -> None:
    serving = await serve(slb, valkey, authority, "--workers", workers, token="sesame")
    to_api = ("--url", serving.api, "--token", "sesame")
    assert (await slb.run("register", "/p", "127.0.0.1:9001", *to_api, "--ca", str(authority.file))).code == 0
    env = {"SLB_CA": str(authority.file), "SLB_TOKEN": "sesame", "SLB_URL": serving.api}
    assert "/p" in (await slb.run("routes", env=env)).out
    assert (await slb.run("status", env=env)).code == 0
    assert (await slb.run("deregister", "/p", "127.0.0.1:9001", env=env)).code == 0
    words = ("--register", serving.api, "--path", "/p", "--token", "sesame", "--ca", str(authority.file))
    process, member = await slb.upstream("a", *words)
    await slb.until_status(f"{serving.url}/p", 200)
    assert valkey.admin.smembers("slb_p") == {member}
    assert await process.stop() == 0
    assert valkey.admin.smembers("slb_p") == set()


async def test_what_does_not_know_its_authority_is_told_how_to_name_it(
    slb: Commands, valkey: Valkey, authority: Authority
) -> None:
    serving = await serve(slb, valkey, authority)
    for words, said in (
        ((), "certificate verify failed: "),
        ((), "--ca or SLB_CA names the file of the authority"),
        (("--ca", "/nowhere.pem"), "ca: /nowhere.pem: No such file or directory"),
    ):
        result = await slb.run("status", "--url", serving.api, *words)
        assert (result.code, result.out) == (1, "")
        (line,) = result.err.splitlines()
        assert said in line
    plainly = await slb.run("status", "--url", serving.api.replace("https", "http"))
    assert plainly.code == 1
    assert "this port takes HTTPS only" in plainly.err


async def test_its_certificate_is_followed_and_a_bad_one_is_refused(
    slb: Commands, valkey: Valkey, authority: Authority
) -> None:
    serving = await serve(slb, valkey, authority, "--workers", "2")
    authority.write("api.pem", b"half a certifi")
    log = serving.process.log
    await eventually(lambda: "certificate_refused" in log.read_text(), 20)
    assert log.read_text().count("certificate_refused") == 1, "it is the supervisor's alone"
    async with slb.session.get(f"{serving.api}/metrics", ssl=authority.client()) as reply:
        text = await reply.text()
    assert "slb_tls_reload_failures_total 1.0" in text.splitlines()
    assert 'slb_tls_certificate_not_after_seconds{certificate="' in text
    authority.issue("api", HERE, "renewed.test")

    async def names() -> set[str]:
        where = urlsplit(serving.api)
        _, writer = await asyncio.open_connection(where.hostname, where.port, ssl=authority.client())
        shown = writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"]
        writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()
        return {name for kind, name in shown if kind == "DNS"}

    await until(names, lambda found: found == {"renewed.test"}, 20.0, "the new certificate")


@pytest.mark.parametrize("words", [("serve",), ("serve", "--workers", "2"), ("quota",)])
async def test_a_certificate_that_cannot_be_used_ends_the_start_with_one_line(
    slb: Commands, words: tuple[str, ...]
) -> None:
    env = {"SLB_API_TLS_CERTIFICATES": "/nowhere.pem", "SLB_DATA_DIR": str(slb.directory / "data")}
    listen = ("--listen", "127.0.0.1:0") if words[0] == "serve" else ()
    result = await slb.run(*words, *listen, "--api", "127.0.0.1:0", env=env)
    assert (result.code, result.out) == (1, "")
    (line,) = result.err.splitlines()
    assert line == "slb: api_tls_certificates: /nowhere.pem: No such file or directory"


async def test_a_connection_too_many_is_answered_over_tls_too(
    slb: Commands, valkey: Valkey, authority: Authority
) -> None:
    config = slb.directory / "slb.toml"
    config.write_text("api_max_connections = 6\n")
    serving = await serve(slb, valkey, authority, "--config", str(config))
    where, held, answers = urlsplit(serving.api), list[asyncio.StreamWriter](), list[bytes]()
    while len(held) < 6 and not (answers and answers[-1].startswith(b"HTTP/1.1 503 ")):
        reader, writer = await asyncio.open_connection(where.hostname, where.port, ssl=authority.client())
        held.append(writer)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: slb\r\n\r\n")
        answers.append(await soon(reader.readuntil(b"}"), 10))
    assert answers[0].startswith(b"HTTP/1.1 200 ")
    assert b"overloaded" in answers[-1]
    for each in held:
        each.close()


async def test_callers_of_the_quota_router_ask_it_over_tls(
    slb: Commands, valkey: Valkey, authority: Authority
) -> None:
    serving = await serve(slb, valkey, authority, "--roles", "proxy,quota", token="sesame")
    headers = {"Authorization": "Bearer sesame"}
    limits = {"max_tokens_per_minute": 60_000, "max_concurrent_requests": 2}
    url = f"{serving.api}/models/m"
    async with slb.session.put(url, json=limits, headers=headers, ssl=authority.client()) as reply:
        assert reply.status == 200
    async with (
        Router.at(serving.api, token="sesame", ca=authority.file) as router,
        router.admitted(estimated_tokens=10) as task,
    ):
        assert task.model_backend_id == "m"
        task.actual_tokens = 5
