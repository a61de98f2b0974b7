"""`slb dns` beside instances that are killed, stopped, frozen and started again."""

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
import orjson
import pytest

from bench.ports import free_ports
from slb.demo.processes import Process
from tests.process.commands import Commands, Serving
from tests.process.serving import events, with_upstream
from tests.support.dns import ZONE, addresses
from tests.support.valkey import Valkey
from tests.support.waiting import patience, soon, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "dns.md"
ONE, OTHER = "127.0.0.2", "127.0.0.3"
GONE_WITHIN = 3.0
"""Seconds within which a killed instance has left the answers, on an idle machine."""


@dataclass
class Responder:
    slb: Commands
    process: Process
    api: str
    host: str
    port: int

    async def ask(self, name: str = ZONE, kind: str = "A", tcp: bool = False) -> dns.message.Message:
        query = dns.message.make_query(name, kind)
        ask: Callable[..., Any] = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        reply = await ask(query, self.host, port=self.port, timeout=patience(5))
        assert isinstance(reply, dns.message.Message)
        return reply

    async def addresses(self) -> list[str]:
        return sorted(addresses(await self.ask()))

    async def until_has(self, *wanted: str, timeout: float = 20.0) -> None:
        await until(self.addresses, lambda found: found == sorted(wanted), timeout, f"{wanted} in the answers")

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = (await self.slb.json(f"{self.api}/status"))["dns"]
        return status


@dataclass
class Fleet:
    slb: Commands
    valkey: Valkey

    async def instance(self, host: str, *arguments: str, **env: str) -> Serving:
        flags = ["--listen", f"{host}:0", "--api", f"{host}:0", *arguments]
        return await self.slb.until_ready(await self.slb.serve(*flags, redis=self.valkey.url, env=env))

    async def responder(self, *arguments: str, listen: str = "127.0.0.1:0", name: str = "") -> Responder:
        flags = ["--listen", listen, "--api", "127.0.0.1:0", "--redis", self.valkey.url, "--ttl", "1s"]
        flags += ["--data-dir", str(self.slb.directory / "data")]
        process = await self.slb.start("dns", *flags, *arguments)
        line = orjson.loads(await process.first_line())
        host, _, port = line["dns"][0].rpartition(":")
        found = re.search(r"API (http://[0-9.:]+)", line["message"])
        assert found is not None
        return Responder(self.slb, process, found[1], host, int(port))


@pytest.fixture
def fleet(slb: Commands, valkey: Valkey) -> Fleet:
    for host in (ONE, OTHER):
        with socket.socket() as probe:
            try:
                probe.bind((host, 0))
            except OSError as error:
                pytest.skip(f"{host}: {error}")
    return Fleet(slb, valkey)


async def test_a_killed_instance_leaves_the_answers_and_comes_back_when_it_is_ready(fleet: Fleet) -> None:
    responder = await fleet.responder()
    assert (await responder.ask()).rcode() == dns.rcode.SERVFAIL
    assert [each["mode"] for each in events_of(responder, "dns_fail_open")] == ["none"]
    one, other = await asyncio.gather(fleet.instance(ONE), fleet.instance(OTHER))
    await responder.until_has(ONE, OTHER)
    os.kill(other.process.pid, signal.SIGKILL)
    await responder.until_has(ONE, timeout=GONE_WITHIN)
    (left,) = events_of(responder, "dns_address_out")
    assert left["address"].startswith(OTHER)
    await fleet.instance(OTHER)
    await responder.until_has(ONE, OTHER)
    assert one.process.running()


async def test_an_instance_that_stops_leaves_the_answers_first_and_serves_until_they_are_forgotten(
    fleet: Fleet, slb: Commands
) -> None:
    responder = await fleet.responder()
    one = await fleet.instance(ONE)
    other = await fleet.instance(OTHER)
    await with_upstream(slb, other)
    await responder.until_has(ONE, OTHER)
    os.kill(other.process.pid, signal.SIGTERM)
    await responder.until_has(ONE)
    assert other.process.running()
    assert (await slb.get(f"{other.url}/p"))[0] == 200
    (stopping,) = events(other, "stopping")
    assert stopping["at_most"] == 30 + 1 + 1, "the TTL, and a second"
    assert await other.process.ended() == 0
    assert (await responder.status())["mode"] == "live"
    assert one.process.running()


async def test_with_a_drain_delay_of_its_own_an_instance_does_not_ask_who_answers_dns(fleet: Fleet) -> None:
    responder = await fleet.responder("--ttl", "1h")
    one = await fleet.instance(ONE, SLB_DRAIN_DELAY="0")
    await responder.until_has(ONE)
    assert await one.process.stop() == 0


async def test_where_all_are_killed_the_last_ones_known_stay_and_it_is_told(fleet: Fleet, slb: Commands) -> None:
    responder = await fleet.responder()
    both = await asyncio.gather(fleet.instance(ONE), fleet.instance(OTHER))
    await responder.until_has(ONE, OTHER)
    for each in both:
        os.kill(each.process.pid, signal.SIGKILL)
    await until(responder.status, lambda status: status["mode"] != "live")
    assert await responder.addresses()
    assert "slb_dns_fail_open 1.0" in (await slb.get(f"{responder.api}/metrics"))[1]
    assert events_of(responder, "dns_fail_open")
    await until(responder.status, lambda status: status["mode"] == "last_known", timeout=30)
    assert await responder.addresses()
    await fleet.instance(ONE)
    await responder.until_has(ONE)
    await until(lambda: slb.get(f"{responder.api}/metrics"), lambda found: "slb_dns_fail_open 0.0" in found[1])


async def test_without_redis_the_answers_stay_and_a_killed_instance_still_leaves_them(
    fleet: Fleet, valkey: Valkey, slb: Commands
) -> None:
    responder = await fleet.responder()
    _, other = await asyncio.gather(fleet.instance(ONE), fleet.instance(OTHER))
    await responder.until_has(ONE, OTHER)
    valkey.kill()
    await slb.until_json(f"{responder.api}/status", lambda status: not status["redis"]["up"])
    assert await responder.addresses() == [ONE, OTHER]
    os.kill(other.process.pid, signal.SIGKILL)
    await responder.until_has(ONE, timeout=GONE_WITHIN)
    valkey.start()
    await slb.until_json(f"{responder.api}/status", lambda status: bool(status["redis"]["up"]))
    assert await responder.addresses() == [ONE]


async def test_a_responder_that_starts_without_redis_answers_with_those_last_known_that_still_live(
    fleet: Fleet, valkey: Valkey
) -> None:
    before = await fleet.responder()
    _, other = await asyncio.gather(fleet.instance(ONE), fleet.instance(OTHER))
    await before.until_has(ONE, OTHER)
    assert await before.process.stop() == 0
    valkey.kill()
    os.kill(other.process.pid, signal.SIGKILL)
    await other.process.ended()
    again = await fleet.responder()
    assert await again.addresses() == [ONE]
    assert (await again.status())["mode"] == "live"


async def test_a_frozen_instance_leaves_the_answers_until_it_goes_on(fleet: Fleet) -> None:
    responder = await fleet.responder()
    _, other = await asyncio.gather(fleet.instance(ONE), fleet.instance(OTHER))
    await responder.until_has(ONE, OTHER)
    os.kill(other.process.pid, signal.SIGSTOP)
    try:
        await responder.until_has(ONE)
    finally:
        os.kill(other.process.pid, signal.SIGCONT)
    await responder.until_has(ONE, OTHER)


async def test_workers_are_one_address_whose_weight_is_the_sum_of_theirs(fleet: Fleet) -> None:
    responder = await fleet.responder()
    one = await fleet.instance(ONE, "--workers", "2", SLB_ADVERTISE_WEIGHT="10")
    await until(
        lambda: responder.ask(f"_http._tcp.{ZONE}", "SRV"),
        lambda reply: [each.weight for section in reply.answer for each in section] == [20],
    )
    assert await responder.addresses() == [ONE]
    await fleet.instance(OTHER)
    await responder.until_has(ONE, OTHER)
    os.kill(one.process.pid, signal.SIGTERM)
    await responder.until_has(OTHER)
    assert await one.process.ended() == 0


async def test_what_is_advertised_and_where_it_is_near_is_answered(fleet: Fleet) -> None:
    responder = await fleet.responder(
        "--zone-name", "a.test", "--zone-name", "b.test", "--view", "127.0.0.0/8=here"
    )
    await fleet.instance(ONE, SLB_ADVERTISE="10.0.0.1:81,fd00::1")
    await fleet.instance(OTHER, SLB_ADVERTISE="10.0.0.2", SLB_ZONE="here")
    await until(responder.status, lambda status: len(status["addresses"]) == 3)
    assert (await responder.status())["mode"] == "unchecked", "nobody listens there"
    for zone in ("a.test", "b.test"):
        for _ in range(5):
            assert addresses(await responder.ask(zone)) == ["10.0.0.2", "10.0.0.1"]
        assert addresses(await responder.ask(zone, "AAAA")) == ["fd00::1"]
    assert (await responder.ask()).rcode() == dns.rcode.REFUSED


async def test_an_instance_may_answer_dns_itself_and_every_responder_is_a_name_server(
    fleet: Fleet, slb: Commands, valkey: Valkey
) -> None:
    responder = await fleet.responder()
    flags = ("--listen", f"{ONE}:0", "--api", f"{ONE}:0", "--roles", "proxy,dns")
    both = await slb.serve(*flags, redis=valkey.url, env={"SLB_DNS_LISTEN": f"{ONE}:0", "SLB_DNS_TTL": "1s"})
    await responder.until_has(ONE)
    found = re.search(rf"DNS at ({ONE}):([0-9]+)", both.line)
    assert found is not None
    itself = Responder(slb, both.process, both.api, found[1], int(found[2]))
    await itself.until_has(ONE)
    for each in (responder, itself):
        await until(
            lambda each=each: each.ask(f"ns.{ZONE}"),  # type: ignore[misc]
            lambda reply: sorted(addresses(reply)) == ["127.0.0.1", ONE],
        )
    assert (await itself.status())["mode"] == "live"


async def test_settings_of_the_answers_hold_without_a_restart(fleet: Fleet, slb: Commands) -> None:
    config = slb.directory / "dns.toml"
    config.write_text('[dns]\nzones = "a.test"\n')
    responder = await fleet.responder("--config", str(config))
    await fleet.instance(ONE)
    await until(lambda: responder.ask("a.test"), lambda reply: addresses(reply) == [ONE])
    config.write_text('[dns]\nzones = "b.test"\n')
    await until(lambda: responder.ask("b.test"), lambda reply: addresses(reply) == [ONE])
    assert (await responder.ask("a.test")).rcode() == dns.rcode.REFUSED


@pytest.mark.skipif(not shutil.which("dig"), reason="no dig here: apt-get install bind9-dnsutils")
async def test_dig_reads_the_answers(fleet: Fleet) -> None:
    responder = await fleet.responder()
    await fleet.instance(ONE)
    await responder.until_has(ONE)

    async def dig(*words: str) -> str:
        place = (f"@{responder.host}", "-p", str(responder.port))
        process = await asyncio.create_subprocess_exec("dig", *place, *words, stdout=asyncio.subprocess.PIPE)
        out, _ = await soon(process.communicate(), 30)
        assert process.returncode == 0, out
        return out.decode()

    assert (await dig("+short", ZONE)).split() == [ONE]
    assert (await dig("+short", "+tcp", ZONE)).split() == [ONE]
    assert (await dig("+short", "SRV", f"_http._tcp.{ZONE}")).startswith("0 1 ")
    assert "status: NXDOMAIN" in await dig(f"x.{ZONE}")
    assert "status: REFUSED" in await dig("example.com")
    for found in (await dig(ZONE, "MX"), await dig("+dnssec", "+cookie", ZONE), await dig("+noedns", ZONE)):
        assert "status: NOERROR" in found
        assert "WARNING" not in found.replace("WARNING: recursion requested but not available", "")
        assert "malformed" not in found.lower()


DNSMASQ = shutil.which("dnsmasq", path="/usr/sbin:/usr/bin:/usr/local/sbin")


@pytest.mark.skipif(DNSMASQ is None, reason="no dnsmasq here: apt-get install dnsmasq-base")
async def test_the_documented_dnsmasq_answers_for_the_zone_and_goes_on_when_one_responder_is_killed(
    fleet: Fleet, tmp_path: Path
) -> None:
    responders = [await fleet.responder(), await fleet.responder()]
    one, other = await asyncio.gather(fleet.instance(ONE), fleet.instance(OTHER))
    for each in responders:
        await each.until_has(ONE, OTHER)
    (documented,) = re.findall(r"```\n(# The zone and all below it;.*?)```", DOCUMENT.read_text(), re.DOTALL)
    places = [f"{each.host}#{each.port}" for each in responders]
    for written, place in zip(("10.0.0.53#5353", "10.0.1.53#5353"), places, strict=True):
        assert written in documented
        documented = documented.replace(written, place)
    (port,) = free_ports(1)
    rest = f"port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nuser=\npid-file\n"
    (tmp_path / "dnsmasq.conf").write_text(documented + rest)
    assert DNSMASQ is not None
    process = await asyncio.create_subprocess_exec(DNSMASQ, "-k", "-C", str(tmp_path / "dnsmasq.conf"))
    try:
        resolver = Responder(fleet.slb, responders[0].process, "", "127.0.0.1", port)
        await until(lambda: _answered(resolver), lambda found: found == [ONE, OTHER])
        assert (await resolver.ask(f"x.{ZONE}")).rcode() == dns.rcode.NXDOMAIN
        os.kill(responders[0].process.pid, signal.SIGKILL)
        os.kill(other.process.pid, signal.SIGKILL)
        await until(lambda: _answered(resolver), lambda found: found == [ONE])
        assert one.process.running()
    finally:
        process.terminate()
        await process.wait()


async def _answered(responder: Responder) -> list[str]:
    """Empty where no answer comes, as of a server that has just been started."""
    try:
        return await responder.addresses()
    except (OSError, dns.exception.DNSException):
        return []


def _port_53_is_ours() -> bool:
    """Whether a resolver of glibc's, which knows no other port, can be shown a responder of this test's."""
    if sys.platform != "linux" or os.geteuid() or not shutil.which("unshare"):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.77", 53))
        except OSError:
            return False
    return os.system("unshare -m true 2>/dev/null") == 0


@pytest.mark.skipif(not _port_53_is_ours(), reason="it takes root: port 53, and a resolv.conf of its own")
async def test_the_resolver_of_glibc_finds_every_address_of_both_families(fleet: Fleet, tmp_path: Path) -> None:
    responder = await fleet.responder(listen="127.0.0.77:53")
    await fleet.instance(ONE, SLB_ADVERTISE=f"{ONE},::1")
    await fleet.instance(OTHER)
    await responder.until_has(ONE, OTHER)
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.77\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    code = (
        "import socket; found = lambda: [each[4][0] for each in socket.getaddrinfo('slb.internal', 80, "
        "type=socket.SOCK_STREAM)]; print(*sorted(found())); print(*{found()[0] for _ in range(40)})"
    )
    mounts = " && ".join(f"mount --bind {tmp_path}/{name} /etc/{name}" for name in ("resolv.conf", "nsswitch.conf"))
    process = await asyncio.create_subprocess_exec(
        *("unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-c", code),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await soon(process.communicate(), 30)
    every, first = out.decode().splitlines()
    assert every.split() in ([ONE, OTHER], [ONE, OTHER, "::1"]), "without IPv6 glibc asks for IPv4 alone"
    assert set(first.split()) <= {ONE, OTHER, "::1"}


def events_of(responder: Responder, name: str) -> list[dict[str, Any]]:
    return events(Serving("", "", "", responder.process), name)
