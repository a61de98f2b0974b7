"""Settings in Redis that are not to be used: logged once each, and once more when they are mended."""

from collections.abc import Mapping, Sequence

import structlog

_LOGGED_AT_ONCE = 100
"""Sentences of one swap: a writer can make a bad setting of every field of every route, and a line holds the event
loop for some 30 µs. All of them stand in `faults` of their route."""

_log = structlog.get_logger()


class SettingsFaults:
    """What has been told so far."""

    def __init__(self) -> None:
        self._told: dict[str, Sequence[str]] = {}

    def tell(self, faults: Mapping[str, Sequence[str]]) -> None:
        """Route path -> one sentence for each fault, as it is now; while a route's are the same, so is the object.
        Nearly always there are none."""
        if not faults and not self._told:
            return
        new = [
            (path, sentence)
            for path, sentences in faults.items()
            if sentences is not self._told.get(path)
            for sentence in sentences
            if sentence not in self._told.get(path, ())
        ]
        for path, sentence in new[:_LOGGED_AT_ONCE]:
            _log.warning("setting_refused", route=path, fault=sentence)
        if more := new[_LOGGED_AT_ONCE:]:
            _log.warning("setting_refused", route=more[0][0], fault=f"and {len(more)} more, here and elsewhere")
        for path in self._told.keys() - faults.keys():
            _log.info("settings_in_order", route=path)
        self._told = dict(faults)
