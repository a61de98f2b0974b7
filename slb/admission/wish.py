"""What a request wishes of the gate of its route, in the words of whatever face it came through."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from slb.admission.entry import Entry, Waiter
from slb.admission.gates import Gates, turn_of
from slb.balance.upstream import LiveUpstream
from slb.routing.table import Route

_NONE: frozenset[LiveUpstream] = frozenset()


class Wish(NamedTuple):
    """`key`: for the policy, empty where there is none; `priority`: the class it names. `failed`: upstreams that
    it is never given; `without`: these, and those that it takes only where no other has room; empty at a first
    attempt. `earlier`: the entry of its last attempt."""

    key: bytes = b""
    priority: str = ""
    failed: frozenset[LiveUpstream] = _NONE
    without: frozenset[LiveUpstream] = _NONE
    earlier: Entry | None = None


def ask_for_slot(
    gates: Gates, route: Route, waiter: Waiter, wish: Wish, clock: Callable[[], float], rng: Random
) -> Entry:
    """Ask for a slot that the whole fleet counts; `admitted` or `rejected` of `waiter` is called, maybe at once.
    `clock`: that of `LiveUpstream.seen`."""
    view, failed, without = route.view, wish.failed, wish.without
    deprioritized: tuple[LiveUpstream, ...] = tuple(without - failed) if without else ()
    probed: tuple[LiveUpstream, ...] = ()
    if not deprioritized and view.fading_until:
        left_out = view.deprioritized(clock(), rng)
        probed = tuple(each for each in left_out if each.is_probed and each not in failed)
        deprioritized = tuple(each for each in left_out if not each.is_probed)
    turn = turn_of(route.settings, wish.priority)
    gate = gates.of(route)
    return gate.enter(route, tuple(failed), deprioritized, turn, waiter, wish.key, wish.earlier, probed)
