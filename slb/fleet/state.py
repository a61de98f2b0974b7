"""The state that viewers read: section -> key -> object, each object written to JSON once; and what has changed."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from slb.answers import dumped

SECTIONS = (
    *("instances", "routes", "upstreams", "queues", "pools"),
    *("jobs", "quota", "rings", "alerts", "changes"),
)

_NULL = b"null"

Object = Mapping[str, Any]


class State:
    """Without the section `view`, which each reader has of its own. Writing costs in proportion to what is put; the
    whole of it in proportion to all that is shown, and is joined of what has been written."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {each: {} for each in SECTIONS}
        self._texts: dict[str, dict[str, bytes]] = {each: {} for each in SECTIONS}
        self._changed: dict[str, set[str]] = {each: set() for each in SECTIONS}

    def put(self, section: str, key: str, shown: Object) -> None:
        text = dumped(shown)
        self.objects[section][key] = shown
        if self._texts[section].get(key) != text:
            self._texts[section][key] = text
            self._changed[section].add(key)

    def drop(self, section: str, key: str) -> None:
        if self.objects[section].pop(key, None) is not None:
            del self._texts[section][key]
            self._changed[section].add(key)

    def replace(self, section: str, shown: Mapping[str, Object]) -> None:
        """This is all of the section."""
        for key in self.objects[section].keys() - shown.keys():
            self.drop(section, key)
        for key, each in shown.items():
            self.put(section, key, each)

    def changes(self) -> bytes:
        """What has changed since the last call, as an object of sections; null stands for what has left."""
        changed, self._changed = self._changed, {each: set() for each in SECTIONS}
        return _joined((section, self._texts[section].get, keys) for section, keys in changed.items() if keys)

    def whole(self) -> bytes:
        return _joined((section, texts.get, texts) for section, texts in self._texts.items())


def _joined(sections: Iterable[tuple[str, Callable[[str], bytes | None], Iterable[str]]]) -> bytes:
    return b"{%b}" % b",".join(
        b'"%b":{%b}'
        % (section.encode(), b",".join(b"%b:%b" % (dumped(key), text_of(key) or _NULL) for key in keys))
        for section, text_of, keys in sections
    )
