"""Names in DNS as sources, by a real name server."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from dns import resolver
from structlog.testing import capture_logs

from e2e.dns import NameServer, Question
from slb.addresses import AddressRules
from slb.discovery import dns
from slb.discovery.dns import MOST_MEMBERS, DnsSource
from slb.discovery.dns_questions import NoAnswer, Questions
from slb.discovery.found import Found, Member
from tests.support.waiting import eventually, soon

FLUX = "dns://flux.test:8000"
SRV = "dns+srv://_http._tcp.flux.test"


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


class Followed:
    """A source that is followed, and what is set on its name."""

    def __init__(self, names: NameServer, name: str, networks: tuple[str, ...] = ()) -> None:
        import ipaddress

        rules = AddressRules([ipaddress.ip_network(each) for each in networks], lambda: [("127.0.0.1", 9)])
        self.set: Mapping[str, str] = {}
        self.source = DnsSource("/p", name, Questions([names.address], lifetime=0.5), rules, lambda: self.set)
        self._found = self.source.follow()

    async def next(self) -> Found:
        return await soon(anext(self._found))

    async def anew(self) -> Found:
        """The first that it says when it is followed again."""
        return await soon(anext(self.source.follow()))

    async def members(self) -> list[str]:
        return sorted((await self.next()).members)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns, "SHORTEST", 0.01)


async def test_each_address_of_a_name_is_a_member_in_both_families(names: NameServer) -> None:
    names.zone.publish(
        "flux.test. 60 IN A 10.0.0.1", "flux.test. 60 IN A 10.0.0.2", "flux.test. 60 IN AAAA fd00::1"
    )
    found = await Followed(names, FLUX).next()
    assert found == Found(dict.fromkeys(["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"], Member()))


async def test_a_name_of_one_family_asks_for_no_other(names: NameServer) -> None:
    names.zone.publish("flux.test. 60 IN A 10.0.0.1", "flux.test. 60 IN AAAA fd00::1")
    assert await Followed(names, "dns6://flux.test:1").members() == ["[fd00::1]:1"]
    assert names.zone.asked == [Question("flux.test", "AAAA", "udp")]


async def test_a_change_is_seen_once_the_ttl_has_passed_and_what_is_as_before_yields_nothing(
    names: NameServer,
) -> None:
    names.zone.publish("flux.test. 0 IN A 10.0.0.1")
    followed = Followed(names, FLUX)
    assert await followed.members() == ["10.0.0.1:8000"]
    coming = asyncio.create_task(followed.next())
    before = len(names.zone.asked)
    await eventually(lambda: len(names.zone.asked) > before + 4)
    assert not coming.done()
    names.zone.publish("flux.test. 0 IN A 10.0.0.1", "flux.test. 0 IN A 10.0.0.2")
    assert sorted((await soon(coming)).members) == ["10.0.0.1:8000", "10.0.0.2:8000"]


@pytest.mark.parametrize(("ttl", "pause"), [(0, 1.0), (1, 1.0), (30, 30.0), (86_400, 60.0)])
async def test_the_next_question_is_after_the_ttl_but_at_least_1_and_at_most_60_seconds_later(
    names: NameServer, monkeypatch: pytest.MonkeyPatch, ttl: int, pause: float
) -> None:
    monkeypatch.setattr(dns, "SHORTEST", 1.0)
    pauses = asyncio.Queue[float]()

    async def paused(event: asyncio.Event, seconds: float) -> None:
        pauses.put_nowait(seconds)
        await event.wait()

    monkeypatch.setattr(dns, "set_within", paused)
    names.zone.publish(f"flux.test. {ttl} IN A 10.0.0.1", "flux.test. 90000 IN AAAA fd00::1")
    followed = Followed(names, FLUX)
    await followed.next()
    going = asyncio.create_task(followed.next())
    assert await soon(pauses.get()) == pause
    going.cancel()


async def test_that_there_is_no_such_name_is_not_kept_where_nothing_says_for_how_long(names: NameServer) -> None:
    names.zone.publish("gpu.test. 60 IN A 10.0.0.1")
    assert await Questions([names.address]).ask("flux.test", "A") == ((), 0.0, {})


async def test_the_ttl_of_an_alias_counts_too(names: NameServer) -> None:
    names.zone.publish(
        "flux.test. 7 IN CNAME gpu.test.",
        "gpu.test. 60 IN A 10.0.0.1",
    )
    reply = await Questions([names.address]).ask("gpu.test", "A")
    assert reply.ttl == 60
    reply = await Questions([names.address]).ask("flux.test", "A")
    assert reply.ttl == 7


async def test_srv_gives_ports_and_weights_and_brings_the_addresses_of_its_targets_in_one_question(
    names: NameServer,
) -> None:
    names.zone.publish(
        "_http._tcp.flux.test. 60 IN SRV 1 3 8001 a.flux.test.",
        "_http._tcp.flux.test. 60 IN SRV 1 0 8002 b.flux.test.",
        "_http._tcp.flux.test. 60 IN SRV 2 9 8003 spare.flux.test.",
        *("a.flux.test. 60 IN A 10.0.0.1", "b.flux.test. 60 IN A 10.0.0.2", "spare.flux.test. 60 IN A 10.0.0.3"),
    )
    found = await Followed(names, SRV).next()
    assert found.members == {"10.0.0.1:8001": Member(weight=3), "10.0.0.2:8002": Member(weight=1)}
    assert names.zone.asked == [Question("_http._tcp.flux.test", "SRV", "udp")]


async def test_targets_whose_addresses_do_not_come_along_are_asked_for_ipv6_where_there_is_no_ipv4(
    names: NameServer,
) -> None:
    names.zone.brings_addresses = False
    names.zone.publish(
        "_http._tcp.flux.test. 60 IN SRV 0 5 8001 a.flux.test.",
        "_http._tcp.flux.test. 60 IN SRV 0 5 8001 b.flux.test.",
        *("a.flux.test. 60 IN A 10.0.0.1", "a.flux.test. 60 IN AAAA fd00::1", "b.flux.test. 60 IN AAAA fd00::2"),
    )
    found = await Followed(names, SRV).next()
    assert found.members == {"10.0.0.1:8001": Member(), "[fd00::2]:8001": Member()}  # equal weights say nothing


async def test_upstreams_with_tls_stay_names_for_their_certificates(names: NameServer) -> None:
    names.zone.publish("_https._tcp.flux.test. 60 IN SRV 0 0 8443 A.flux.test.", "a.flux.test. 60 IN A 10.0.0.1")
    assert await Followed(names, "dns+srvs://_https._tcp.flux.test").members() == ["https://a.flux.test:8443"]
    assert len(names.zone.asked) == 1


async def test_a_target_of_a_dot_says_that_the_service_is_gone(names: NameServer) -> None:
    names.zone.publish("_http._tcp.flux.test. 60 IN SRV 0 0 0 .")
    assert await Followed(names, SRV).next() == Found({}, is_gone=True)


async def test_a_name_that_does_not_exist_has_no_members_and_is_not_gone_for_that(names: NameServer) -> None:
    assert await Followed(names, FLUX).next() == Found({})
    names.zone.publish("flux.test. 60 IN TXT nothing")
    assert await Followed(names, FLUX).next() == Found({})


@pytest.mark.parametrize("trouble", ["SERVFAIL", "REFUSED", "silence"])
async def test_while_nothing_is_answered_the_last_set_holds_and_why_is_shown_and_logged_once(
    names: NameServer, trouble: str
) -> None:
    names.zone.publish("flux.test. 0 IN A 10.0.0.1")
    followed = Followed(names, FLUX)
    await followed.next()
    assert followed.source.asked.answered_at > 0
    coming = asyncio.create_task(followed.next())
    with capture_logs() as logs:
        names.zone.troubles["flux.test"] = trouble  # type: ignore[assignment]
        await eventually(lambda: bool(followed.source.asked.trouble))
        before = len(names.zone.asked)
        await eventually(lambda: len(names.zone.asked) >= before + 2)
        assert not coming.done()
        names.zone.publish("flux.test. 0 IN A 10.0.0.2")
        names.zone.troubles.clear()
        assert sorted((await soon(coming)).members) == ["10.0.0.2:8000"]
    events = [each["event"] for each in logs]
    assert events == ["discovery_not_answered", "discovery_answered_again"]
    assert "flux.test A" in logs[0]["error"]
    assert not followed.source.asked.trouble


async def test_nothing_of_an_earlier_time_is_remembered_as_another_instance_may_have_followed_since(
    names: NameServer,
) -> None:
    names.zone.publish("flux.test. 0 IN A 10.0.0.1")
    followed = Followed(names, FLUX)
    await followed.next()
    names.zone.troubles["flux.test"] = "SERVFAIL"
    again = asyncio.create_task(followed.anew())
    await eventually(lambda: bool(followed.source.asked.trouble))
    assert not again.done()
    names.zone.troubles.clear()
    assert await soon(again) == Found({"10.0.0.1:8000": Member()})


async def test_nothing_is_said_before_every_question_has_been_answered_once(names: NameServer) -> None:
    names.zone.brings_addresses = False
    names.zone.publish(
        "_http._tcp.flux.test. 0 IN SRV 0 0 8001 a.flux.test.",
        "_http._tcp.flux.test. 0 IN SRV 0 0 8001 b.flux.test.",
        *("a.flux.test. 0 IN A 10.0.0.1", "b.flux.test. 0 IN A 10.0.0.2"),
    )
    names.zone.troubles["b.flux.test"] = "SERVFAIL"
    followed = Followed(names, SRV)
    coming = asyncio.create_task(followed.next())
    await eventually(lambda: bool(followed.source.asked.trouble))
    assert not coming.done()
    names.zone.troubles.clear()
    assert sorted((await soon(coming)).members) == ["10.0.0.1:8001", "10.0.0.2:8001"]


async def test_a_target_that_is_not_answered_keeps_its_addresses_while_others_change(names: NameServer) -> None:
    names.zone.brings_addresses = False
    srv = [f"_http._tcp.flux.test. 0 IN SRV 0 0 8001 {each}.flux.test." for each in "ab"]
    names.zone.publish(*srv, "a.flux.test. 0 IN A 10.0.0.1", "b.flux.test. 0 IN A 10.0.0.2")
    followed = Followed(names, SRV)
    await followed.next()
    names.zone.troubles["b.flux.test"] = "SERVFAIL"
    names.zone.publish(*srv, "a.flux.test. 0 IN A 10.0.0.9", "b.flux.test. 0 IN A 10.0.0.2")
    assert await followed.members() == ["10.0.0.2:8001", "10.0.0.9:8001"]


async def test_a_long_answer_is_cut_short_over_udp_and_comes_over_tcp_and_has_a_most(names: NameServer) -> None:
    names.zone.publish(*(f"flux.test. 60 IN A 10.1.{each // 250}.{each % 250 + 1}" for each in range(3000)))
    followed = Followed(names, "dns4://flux.test:80")
    with capture_logs() as logs:
        found = await followed.next()
    assert len(found.members) == MOST_MEMBERS
    assert list(dict.fromkeys(each.protocol for each in names.zone.asked)) == ["udp", "tcp"]  # each again, if late
    (event,) = (each for each in logs if each["event"] == "discovery_too_many")
    assert (event["found"], event["most"]) == (3000, MOST_MEMBERS)


async def test_a_name_that_had_a_long_answer_is_asked_for_beside_the_event_loop(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    resolve = resolver.Resolver.resolve

    def noted(*given: Any, **more: Any) -> Any:
        threads.append(threading.current_thread().name)
        return resolve(*given, **more)

    monkeypatch.setattr(resolver.Resolver, "resolve", noted)  # the blocking one
    names.zone.publish(*(f"flux.test. 0 IN A 10.1.{each // 250}.{each % 250 + 1}" for each in range(300)))
    questions = Questions([names.address])
    assert [len((await questions.ask("flux.test", "A")).records) for _ in range(3)] == [300] * 3
    assert [name.partition("_")[0] for name in threads] == ["dns", "dns"]
    names.zone.publish("flux.test. 0 IN A 10.1.0.1")
    assert [len((await questions.ask("flux.test", "A")).records) for _ in range(3)] == [1] * 3
    assert len(threads) == 3
    names.zone.troubles["flux.test"] = "SERVFAIL"
    with pytest.raises(NoAnswer, match="SERVFAIL"):
        await questions.ask("flux.test", "A")


async def test_addresses_that_break_the_rules_are_left_out_and_logged_once(names: NameServer) -> None:
    addresses = ["169.254.169.254", "0.0.0.0", "127.0.0.1", "10.0.0.1", "192.168.0.1"]
    names.zone.publish(
        *(f"flux.test. 0 IN A {each}" for each in addresses), "flux.test. 0 IN AAAA 0:0:0:0:0:ffff:a9fe:1"
    )
    followed = Followed(names, "dns://flux.test:9", ("10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16"))
    with capture_logs() as logs:
        assert await followed.members() == ["10.0.0.1:9"]
        names.zone.publish(*(f"flux.test. 0 IN A {each}" for each in [*addresses, "10.0.0.2"]))
        assert await followed.members() == ["10.0.0.1:9", "10.0.0.2:9"]
    assert [each["event"] for each in logs] == ["discovery_refused", "discovery_refused"]
    assert len(logs[0]["why"]) == 5
    assert "slb's own listener" in "".join(logs[0]["why"])


async def test_what_is_set_on_the_name_holds_for_each_member_and_a_change_of_it_is_told_at_once(
    names: NameServer,
) -> None:
    names.zone.publish("flux.test. 60 IN A 10.0.0.1")
    followed = Followed(names, FLUX)
    followed.set = {"slots": "8", "zone": "a", "weight": "0", "joined": "1.5"}
    assert (await followed.next()).members == {"10.0.0.1:8000": Member(slots=8, zone="a")}
    coming = asyncio.create_task(followed.next())
    await asyncio.sleep(0)
    followed.set = {"weight": "3", "drain": "true"}
    followed.source.look_again()
    assert (await soon(coming)).members == {"10.0.0.1:8000": Member(is_draining=True, weight=3)}


@pytest.mark.parametrize("count", [1, 40])
async def test_names_share_one_limit_of_questions_under_way(names: NameServer, count: int) -> None:
    questions = Questions([names.address])
    replies = await soon(asyncio.gather(*(questions.ask(f"n{each}.test", "A") for each in range(count))))
    assert [list(each.records) for each in replies] == [[]] * count
