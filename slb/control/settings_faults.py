"""Settings in Redis that are not to be used: logged once each, and once more when they are mended."""

from collections.abc import Mapping, Sequence
from itertools import islice

import structlog

_LOGGED_AT_ONCE = 100
"""Lines of one swap, each way: any writer can make every setting of every route a bad one, and a line holds the
event loop for some 30 µs. All faults stand in `faults` of their route."""

_log = structlog.get_logger()


class SettingsFaults:
    def __init__(self) -> None:
        self._logged: dict[str, Sequence[str]] = {}

    def log(self, faults: Mapping[str, Sequence[str]]) -> None:
        """Route path -> a sentence for each fault, as it is now; while a route's are the same, so is the object."""
        if not faults and not self._logged:
            return
        logged = self._logged
        changed = {path: sentences for path, sentences in faults.items() if sentences is not logged.get(path)}
        self._log_refused({path: self._new(path, sentences) for path, sentences in changed.items()})
        self._log_in_order([path for path in self._logged if path not in faults])
        self._logged = dict(faults)

    def _new(self, path: str, sentences: Sequence[str]) -> Sequence[str]:
        logged = self._logged.get(path)
        return [sentence for sentence in sentences if sentence not in logged] if logged else sentences

    def _log_refused(self, new: Mapping[str, Sequence[str]]) -> None:
        each = ((path, sentence) for path, sentences in new.items() for sentence in sentences)
        for path, sentence in islice(each, _LOGGED_AT_ONCE):
            _log.warning("setting_refused", route=path, fault=sentence)
        for path, _ in islice(each, 1):
            more = sum(map(len, new.values())) - _LOGGED_AT_ONCE
            _log.warning("setting_refused", route=path, fault=f"and {more} more, here and elsewhere")

    def _log_in_order(self, paths: Sequence[str]) -> None:
        for path in paths[:_LOGGED_AT_ONCE]:
            _log.info("settings_in_order", route=path)
        if more := paths[_LOGGED_AT_ONCE:]:
            _log.info("settings_in_order", route=more[0], others=len(more) - 1)
