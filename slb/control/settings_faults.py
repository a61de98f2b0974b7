"""Settings in Redis that are not to be used: logged once each, and once more when they are mended."""

from collections.abc import Mapping, Sequence

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
        new = [
            (path, sentence)
            for path, sentences in faults.items()
            if sentences is not (logged := self._logged.get(path, ()))
            for sentence in sentences
            if sentence not in logged
        ]
        for path, sentence in new[:_LOGGED_AT_ONCE]:
            _log.warning("setting_refused", route=path, fault=sentence)
        if more := new[_LOGGED_AT_ONCE:]:
            _log.warning("setting_refused", route=more[0][0], fault=f"and {len(more)} more, here and elsewhere")
        in_order = [path for path in self._logged if path not in faults]
        for path in in_order[:_LOGGED_AT_ONCE]:
            _log.info("settings_in_order", route=path)
        if others := in_order[_LOGGED_AT_ONCE:]:
            _log.info("settings_in_order", route=others[0], others=len(others) - 1)
        self._logged = dict(faults)
