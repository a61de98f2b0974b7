"""The sources that are registered on routes: names in DNS, in the sets of routes among their members."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from slb.discovery.dns import DnsSource
from slb.discovery.dns_questions import Questions
from slb.dns_names import is_normal_dns_name
from slb.resolver import Rules
from slb.routing.mirror import Mirror

_ENDING = 600.0
"""Seconds that a name which is registered no more is still a source, one that says that it is gone. So whoever
takes over from a writer that died meanwhile removes its members."""

_NOTHING: Mapping[str, str] = {}


class RegisteredNames:
    """Follows the table of `mirror`; `on_change` is called when `sources` are others than before. Costs as much at
    each swap as there are routes with names, which are few of many."""

    def __init__(
        self,
        mirror: Mirror,
        questions: Questions,
        rules: Rules,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mirror = mirror
        self._questions = questions
        self._rules = rules
        self._clock = clock
        self._sources: dict[tuple[str, str], DnsSource] = {}
        self._ended: dict[tuple[str, str], float] = {}
        self._set: dict[str, Mapping[str, str]] = {}
        self.on_change: Callable[[], None] = lambda: None
        mirror.on_swap(self.look)

    @property
    def sources(self) -> Sequence[DnsSource]:
        return list(self._sources.values())

    def has_ended(self, path: str, name: str) -> bool:
        return (path, name) in self._ended

    def look_again(self) -> None:
        """Ask for all names now, as other servers or other rules may hold."""
        for source in self._sources.values():
            source.look_again()

    def adopt(self, known: Iterable[tuple[str, str]]) -> None:
        """Sources (path, name) that any instance has ever followed: those that are registered no more end, as
        nobody may have been there to see it."""
        given_up = [key for key in known if key not in self._sources and is_normal_dns_name(key[1])]
        for path, name in given_up:
            self._sources[path, name] = source = self._made(path, name)
            self._ended[path, name] = self._clock()
            source.end()
        if given_up:
            self.on_change()

    def _made(self, path: str, name: str) -> DnsSource:
        return DnsSource(path, name, self._questions, self._rules, partial(self._of, name))

    def look(self, _: object = ()) -> None:
        """Take up what the table has; at each swap."""
        named = self._mirror.table.named
        if not named and not self._sources:
            return
        wanted = {(path, name) for path, route in named.items() for name in route.names}
        before = self._sources.keys() | ()
        self._begin(wanted)
        self._end(wanted)
        self._hand_on({name for _, name in wanted})
        if self._sources.keys() != before:
            self.on_change()

    def _begin(self, wanted: set[tuple[str, str]]) -> None:
        for path, name in sorted(wanted - self._sources.keys()):
            self._sources[path, name] = self._made(path, name)
        for key in wanted & self._ended.keys():
            del self._ended[key]
            self._sources[key].stand()

    def _end(self, wanted: set[tuple[str, str]]) -> None:
        now = self._clock()
        for key in self._sources.keys() - wanted - self._ended.keys():
            self._ended[key] = now
            self._sources[key].end()
        for key, since in list(self._ended.items()):
            if now - since >= _ENDING:
                del self._ended[key], self._sources[key]

    def _hand_on(self, names: set[str]) -> None:
        """What is set on a name itself holds for its members."""
        for (_, name), source in self._sources.items():
            if name in names and self._of(name) != self._set.get(name, _NOTHING):
                source.look_again()
        self._set = {name: self._of(name) for name in names}

    def _of(self, name: str) -> Mapping[str, str]:
        return self._mirror.attributes.get(name, _NOTHING)
