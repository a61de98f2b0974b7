"""Which of the settings written for a route are in effect.

A setting that is changed by hand to an invalid value is reported as a fault, and its last valid value stays in
effect: a typing error must not remove a cap.
"""

from collections.abc import Callable, Mapping
from typing import Any

from slb.model import RouteRecord, usable_settings

Judged = dict[str, tuple[list[str], Mapping[str, Any]]]
"""path -> one sentence for each setting at fault, and the fields in effect instead: for routes made anew."""


class EffectiveSettings:
    """`faults`: of each route that has any, one sentence for each setting at fault. `faults_since`: of these, since
    when there was no moment without one, by `now`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.faults: dict[str, list[str]] = {}
        self.faults_since: dict[str, float] = {}
        self._now = now
        self._standing: dict[str, Mapping[str, Any]] = {}

    def fields(self, path: str, record: RouteRecord) -> tuple[dict[str, Any], list[str]]:
        """Of the hash in `record`: the fields in effect, and one sentence for each at fault. A field at fault has
        its last valid value, where this process has seen one."""
        written = record.settings or {}
        kept, faults = usable_settings(written)
        standing = self._standing.get(path, {})
        return {**{name: value for name, value in standing.items() if name in written}, **kept}, faults

    def judge(self, path: str, new: RouteRecord, old: RouteRecord | None, judged: Judged) -> dict[str, Any]:
        """The fields in effect once `new` replaces `old`, also noted in `judged`, for `adopt`."""
        written = new.settings or {}
        kept, faults = usable_settings(written)
        standing: dict[str, Any] = {}
        if faults and old is not None:
            held, _ = self.fields(path, old)
            standing = {name: held[name] for name in written if name not in kept and name in held}
        judged[path] = faults, standing
        return {**standing, **kept}

    def adopt(self, judged: Judged) -> None:
        """Apply what was judged."""
        for path, (faults, standing) in judged.items():
            since = self.faults_since.get(path)
            self.forget(path)
            if faults:
                self.faults[path] = faults
                self.faults_since[path] = self._now() if since is None else since
            if standing:
                self._standing[path] = standing

    def told(self, path: str, faults: list[str]) -> None:
        """These are the faults of a route whose hash is the same as before."""
        if not faults:
            self.faults.pop(path, None)
            self.faults_since.pop(path, None)
        elif faults != self.faults.get(path):  # else the object stays the same
            self.faults[path] = faults
            self.faults_since.setdefault(path, self._now())

    def forget(self, path: str) -> None:
        self.faults.pop(path, None)
        self.faults_since.pop(path, None)
        self._standing.pop(path, None)
