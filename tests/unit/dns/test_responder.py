"""What is answered to which question. dnspython, which reads the answers, knows nothing of slb."""

from collections import Counter
from itertools import pairwise

import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import pytest

from slb.dns.wire import wire_name
from tests.support.dns import STRANGER, ZONE, Asked, fleet, is_truncated, member


def test_the_zones_name_has_every_address_that_is_in_the_answers() -> None:
    asked = Asked([member("10.0.0.1"), member("10.0.0.2"), member("fd00::1")])
    reply = asked.ask()
    assert sorted(asked.addresses()) == ["10.0.0.1", "10.0.0.2"]
    assert asked.addresses(kind="AAAA") == ["fd00::1"]
    assert (reply.rcode(), reply.answer[0].ttl) == (dns.rcode.NOERROR, 5)
    assert reply.flags & dns.flags.AA
    assert reply.flags & dns.flags.RD
    assert not reply.flags & dns.flags.RA
    assert not is_truncated(reply)


def test_an_address_with_several_ports_is_one_address() -> None:
    assert Asked([member("10.0.0.1", 80), member("10.0.0.1", 81)]).addresses() == ["10.0.0.1"]


def test_the_question_comes_back_in_the_case_it_was_asked_in() -> None:
    asked = Asked(fleet(2))
    query = dns.message.make_query("sLb.iNtErNaL", "A")
    answer = asked.raw(query.to_wire())
    assert answer is not None
    assert answer[12:].startswith(b"\x03sLb\x08iNtErNaL\0")
    assert {str(each.name) for each in dns.message.from_wire(answer).answer} == {"sLb.iNtErNaL."}


def test_srv_records_have_ports_weights_and_names_that_resolve() -> None:
    asked = Asked(
        [member("10.0.0.1", 8080, weight=3), member("fd00::1", 8081), member("10.0.0.2", 8443, serves="https")]
    )
    (records,) = asked.ask(f"_http._tcp.{ZONE}", "SRV", edns=1232).answer
    found = {(each.port, each.weight, each.priority): str(each.target) for each in records}
    assert found.keys() == {(8080, 3, 0), (8081, 1, 0)}
    assert asked.addresses(name=found[8080, 3, 0]) == ["10.0.0.1"]
    assert asked.addresses(name=found[8081, 1, 0], kind="AAAA") == ["fd00::1"]
    (tls,) = asked.ask(f"_https._tcp.{ZONE}", "SRV").answer
    assert [each.port for each in tls] == [8443]


def test_the_zone_has_a_soa_and_a_name_server_with_an_address() -> None:
    asked = Asked(fleet(2))
    (soa,) = asked.ask(kind="SOA").answer
    assert (soa[0].serial, soa[0].minimum, str(soa[0].mname)) == (7, 5, f"ns.{ZONE}.")
    (servers,) = asked.ask(kind="NS").answer
    assert [str(each.target) for each in servers] == [f"ns.{ZONE}."]
    assert asked.addresses(name=f"ns.{ZONE}") == ["10.9.9.9"]


@pytest.mark.parametrize(
    ("name", "kind", "rcode"),
    [
        (ZONE, "AAAA", dns.rcode.NOERROR),
        (ZONE, "MX", dns.rcode.NOERROR),
        (ZONE, "TYPE65280", dns.rcode.NOERROR),
        (ZONE, "HTTPS", dns.rcode.NOERROR),
        (f"_tcp.{ZONE}", "SRV", dns.rcode.NOERROR),
        (f"_https._tcp.{ZONE}", "SRV", dns.rcode.NOERROR),
        (f"ip-10-0-1-1.{ZONE}", "AAAA", dns.rcode.NOERROR),
        (f"ip-10-0-1-9.{ZONE}", "A", dns.rcode.NXDOMAIN),
        (f"x.{ZONE}", "A", dns.rcode.NXDOMAIN),
        (f"a.b.c.{ZONE}", "TXT", dns.rcode.NXDOMAIN),
    ],
)
def test_what_is_not_there_is_denied_with_the_soa_that_says_for_how_long(
    name: str, kind: str, rcode: dns.rcode.Rcode
) -> None:
    reply = Asked(fleet(2)).ask(name, kind)
    assert (reply.rcode(), reply.answer) == (rcode, [])
    (soa,) = reply.authority
    assert (str(soa.name), soa.rdtype, soa.ttl, soa[0].minimum) == (f"{ZONE}.", dns.rdatatype.SOA, 5, 5)


@pytest.mark.parametrize("name", ["example.com", "internal", ".", "xslb.internal", "internal.slb"])
def test_other_zones_are_refused(name: str) -> None:
    reply = Asked(fleet(2)).ask(name)
    assert (reply.rcode(), reply.answer, reply.authority) == (dns.rcode.REFUSED, [], [])
    assert not reply.flags & dns.flags.AA


@pytest.mark.parametrize("kind", ["AXFR", "IXFR"])
def test_zones_are_not_transferred(kind: str) -> None:
    query = dns.message.make_query(ZONE, dns.rdatatype.from_text(kind), use_edns=False)
    query.authority = []
    answer = Asked(fleet(2)).responder.over_tcp(query.to_wire(), "10.0.0.1")
    assert answer is not None
    assert dns.message.from_wire(answer).rcode() == dns.rcode.REFUSED


def test_another_class_and_another_opcode_are_refused_by_name() -> None:
    asked = Asked(fleet(2))
    query = dns.message.make_query(ZONE, "A", rdclass=dns.rdataclass.CH)
    answer = asked.raw(query.to_wire())
    assert answer is not None
    assert dns.message.from_wire(answer).rcode() == dns.rcode.REFUSED
    notify = dns.message.make_query(ZONE, "SOA")
    notify.set_opcode(dns.opcode.NOTIFY)
    answer = asked.raw(notify.to_wire())
    assert answer is not None
    assert (len(answer), dns.message.from_wire(answer).rcode()) == (12, dns.rcode.NOTIMP)


def test_any_gets_one_small_record() -> None:
    reply = Asked(fleet(50)).ask(kind="ANY")
    assert [each.rdtype for each in reply.answer] == [dns.rdatatype.HINFO]


def test_of_two_zones_one_within_the_other_the_longer_one_answers() -> None:
    asked = Asked(fleet(1), zones=("internal", ZONE))
    assert str(asked.ask(f"x.{ZONE}").authority[0].name) == f"{ZONE}."
    assert str(asked.ask("x.internal").authority[0].name) == "internal."


def test_without_any_instance_since_the_start_nobody_is_told_that_there_are_none() -> None:
    asked = Asked()
    for name, kind in ((ZONE, "A"), (ZONE, "AAAA"), (f"_http._tcp.{ZONE}", "SRV")):
        assert asked.ask(name, kind).rcode() == dns.rcode.SERVFAIL
    assert asked.ask(kind="SOA").answer


@pytest.mark.parametrize("ending", ["", "x" * 63])
def test_13_addresses_fit_512_bytes_whatever_the_name(ending: str) -> None:
    zone = ".".join(filter(None, [ending, ending, ending, "internal"])) if ending else ZONE
    asked = Asked(fleet(50), zones=(zone,))
    reply = asked.ask(zone)
    assert len(asked.addresses(name=zone)) == 13
    assert len(reply.to_wire()) <= 512
    assert not is_truncated(reply)


@pytest.mark.parametrize(("size", "most"), [(512, 28), (1232, 73), (4096, 73), (65_535, 73), (0, 13)])
def test_edns_has_room_for_more_but_never_for_more_than_1232_bytes(size: int, most: int) -> None:
    asked = Asked(fleet(200))
    query = dns.message.make_query(ZONE, "A", use_edns=0 if size else False, payload=size)
    answer = asked.raw(query.to_wire())
    assert answer is not None
    assert len(answer) <= min(size or 512, 1232)
    found = asked.addresses(edns=size)
    assert len(found) <= most
    assert len(found) >= most * 3 // 4
    assert len(set(found)) == len(found)


def test_over_tcp_there_are_all() -> None:
    asked = Asked(fleet(500))
    assert len(asked.addresses(tcp=True)) == 500
    assert not is_truncated(asked.ask(tcp=True))


@pytest.mark.parametrize("count", [13, 14, 20, 97])
def test_each_address_is_in_as_many_answers_as_any_other_and_first_as_often(count: int) -> None:
    asked = Asked(fleet(count))
    answers = [asked.addresses() for _ in range(3 * count)]
    assert set(Counter(answer[0] for answer in answers).values()) == {3}
    inside = Counter(address for answer in answers for address in answer)
    assert set(inside.values()) == {3 * min(count, 13)}


def test_what_follows_the_first_address_is_shuffled() -> None:
    asked = Asked(fleet(13))
    answers = [asked.addresses() for _ in range(13)]
    followers = Counter(answer[1] for answer in answers)
    assert max(followers.values()) < 13
    assert len({tuple(sorted(answer)) for answer in answers}) == 1
    pairs = {(one, other) for answer in answers for one, other in pairwise(answer)}
    assert len(pairs) > 40, "in one fixed ring there are 13"


def test_clients_of_a_network_get_the_instances_of_their_zone_first() -> None:
    near, far = fleet(3, "b"), [member(f"10.0.9.{index}", zone="a") for index in range(1, 31)]
    asked = Asked([*far, *near], views=(("10.1.0.0/16", "b"), ("10.2.0.0/16", "a")))
    hosts = {str(each.place.address) for each in near}
    for _ in range(20):
        assert set(asked.addresses(peer="10.1.2.3")[:3]) == hosts
    assert len(asked.addresses(peer="10.1.2.3")) == 13
    assert not hosts & set(asked.addresses(peer="10.2.0.1"))
    firsts = {asked.addresses(peer="10.3.0.1")[0] for _ in range(33)}
    assert len(firsts) == 33
    (records,) = asked.ask(f"_http._tcp.{ZONE}", "SRV", peer="10.1.2.3", tcp=True).answer
    assert Counter(each.priority for each in records) == {0: 3, 1: 30}


@pytest.mark.parametrize("edns", [0, 512, 1232, 4096])
@pytest.mark.parametrize("kind", ["A", "AAAA", "SRV", "ANY", "SOA", "NS", "MX", "AXFR"])
@pytest.mark.parametrize("name", [ZONE, f"_http._tcp.{ZONE}", f"x.{ZONE}", "x", "."])
def test_a_stranger_gets_at_most_four_times_what_was_sent(name: str, kind: str, edns: int) -> None:
    zones = (ZONE, "x")
    asked = Asked([*fleet(100), *(member(f"fd00::{each}") for each in range(1, 100))], zones=zones)
    query = dns.message.make_query(name, kind, use_edns=0 if edns else False, payload=edns).to_wire()
    answer = asked.raw(query, STRANGER)
    assert answer is not None
    assert len(answer) <= 4 * len(query)
    dns.message.from_wire(answer)


def test_a_strangers_answer_that_has_less_than_a_known_clients_says_so_and_tcp_has_the_rest() -> None:
    asked = Asked(fleet(20))
    reply = asked.ask(peer=STRANGER)
    assert is_truncated(reply)
    assert 0 < len(asked.addresses(peer=STRANGER)) < 13
    assert len(asked.addresses(peer=STRANGER, tcp=True)) == 20
    assert not is_truncated(Asked(fleet(3)).ask(peer=STRANGER))
    assert asked.counts.truncated == 2


def test_srv_records_that_do_not_all_fit_are_truncated_for_everybody() -> None:
    asked = Asked(fleet(60))
    name = f"_http._tcp.{ZONE}"
    assert is_truncated(asked.ask(name, "SRV"))
    (records,) = asked.ask(name, "SRV", tcp=True).answer
    assert len(records) == 60


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\0" * 11,
        b"\0" * 16,
        b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"\x03abc" * 2,
        b"\0\1\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1",
        b"\0\1\1\0\0\1\0\0\0\0\0\0\x41" + b"a" * 0x41 + b"\0\0\1\0\1",
        b"\0\1\1\0\0\1\0\0\0\0\0\0" + (b"\x3f" + b"a" * 63) * 4 + b"\0\0\1\0\1",
        b"\0\1\1\0\0\1\0\0\0\0\0\0" + wire_name(ZONE) + b"\0\1\0\1x",
        b"\0\1\1\0\0\1\0\0\0\0\0\0" + wire_name(ZONE) + b"\0\1\0",
        b"\0\1\1\0\0\1\0\0\0\0\0\1" + wire_name(ZONE) + b"\0\1\0\1\0\0\x29\x04",
        b"\0\1\1\0\0\1\0\0\0\0\0\1" + wire_name(ZONE) + b"\0\1\0\1\0\0\x29\x04\xd0\0\0\0\0\0\5",
        b"\0\1\1\0\0\1\0\0\0\0\0\1" + wire_name(ZONE) + b"\0\1\0\1\0\0\1\x04\xd0\0\0\0\0\0\0",
    ],
    ids=lambda packet: f"{len(packet)} bytes",
)
def test_malformed_packets_get_no_answer(packet: bytes) -> None:
    asked = Asked(fleet(2))
    assert asked.raw(packet) is None
    assert asked.counts.dropped == {"malformed": 1}
    assert not asked.counts.answers


def test_answers_are_not_answered_so_that_two_responders_cannot_keep_each_other_busy() -> None:
    asked = Asked(fleet(2))
    answer = asked.raw(dns.message.make_query(ZONE, "A").to_wire())
    assert answer is not None
    assert asked.raw(answer) is None
    assert asked.counts.dropped == {"response": 1}


def test_an_unknown_version_of_edns_and_records_behind_a_question_are_refused_by_name() -> None:
    asked = Asked(fleet(2))
    newer = asked.raw(dns.message.make_query(ZONE, "A", use_edns=1).to_wire())
    assert newer is not None
    assert dns.message.from_wire(newer).rcode() == dns.rcode.BADVERS
    query = dns.message.make_query(ZONE, "A")
    query.additional = asked.ask().answer
    other = asked.raw(query.to_wire())
    assert other is not None
    assert dns.message.from_wire(other).rcode() == dns.rcode.FORMERR


def test_what_was_answered_is_counted() -> None:
    asked = Asked(fleet(2))
    asked.ask()
    asked.ask(f"x.{ZONE}")
    asked.ask("other", tcp=True)
    assert asked.counts.answers == {("udp", "NOERROR"): 1, ("udp", "NXDOMAIN"): 1, ("tcp", "REFUSED"): 1}
