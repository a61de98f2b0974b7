"""Names of upstreams, by a resolver that answers as it is told."""

import asyncio
import socket

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from slb.addresses import AddressRules
from slb.resolver import RuledResolver

METADATA, ORDINARY = "169.254.169.254", "10.0.0.1"


class Names(AbstractResolver):
    """Every name has `addresses`; a lookup ends once `gate` is set."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        await self.gate.wait()
        return [
            ResolveResult(hostname=host, host=each, port=port, family=family, proto=0, flags=0)
            for each in self.addresses
        ]

    async def close(self) -> None:
        self.addresses = ()


def resolver(names: Names, exempt: str = "") -> RuledResolver:
    return RuledResolver(AddressRules((), lambda: ()), names, exempt)


async def test_addresses_that_are_no_upstreams_are_left_out() -> None:
    found = await resolver(Names(METADATA, ORDINARY)).resolve("gpu", 80)
    assert [each["host"] for each in found] == [ORDINARY]


async def test_a_name_with_no_other_address_is_refused_with_the_reason() -> None:
    with pytest.raises(OSError, match=f"{METADATA} is link-local"):
        await resolver(Names(METADATA)).resolve("gpu", 80)
    with pytest.raises(OSError, match="gpu has no address"):
        await resolver(Names()).resolve("gpu", 80)


async def test_no_rule_applies_to_the_exempt_host() -> None:
    ruled = resolver(Names(METADATA), exempt="fallback")
    assert [each["host"] for each in await ruled.resolve("fallback", 80)] == [METADATA]
    with pytest.raises(OSError, match="link-local"):
        await ruled.resolve("gpu", 80)


async def test_a_name_is_looked_up_once_for_all_who_ask_at_the_same_time() -> None:
    names = Names(ORDINARY)
    names.gate.clear()
    ruled = resolver(names)
    asking = [asyncio.create_task(ruled.resolve("gpu", 80)) for _ in range(3)]
    await asyncio.sleep(0)
    names.gate.set()
    assert [len(found) for found in await asyncio.gather(*asking)] == [1, 1, 1]
    assert names.asked == ["gpu"]


async def test_closing_ends_lookups_and_closes_what_it_resolves_by() -> None:
    names = Names(ORDINARY)
    names.gate.clear()
    ruled = resolver(names)
    asking = asyncio.create_task(ruled.resolve("gpu", 80))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await ruled.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert names.addresses == ()
