"""Settings in Redis that are not to be used: logged once each, and once more when they are mended."""

from collections.abc import Mapping, Sequence

import structlog

_log = structlog.get_logger()


class SettingsFaults:
    """What has been told so far."""

    def __init__(self) -> None:
        self._told: dict[str, list[str]] = {}

    def tell(self, faults: Mapping[str, Sequence[str]]) -> None:
        """Route path -> one sentence for each fault, as it is now. Nearly always there are none."""
        if not faults and not self._told:
            return
        for path, sentences in faults.items():
            for sentence in sentences:
                if sentence not in self._told.get(path, ()):
                    _log.warning("setting_refused", route=path, fault=sentence)
        for path in self._told.keys() - faults.keys():
            _log.info("settings_in_order", route=path)
        self._told = {path: list(sentences) for path, sentences in faults.items()}
