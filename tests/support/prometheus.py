"""A real Prometheus: scrapes one address, and is asked what it saw."""

import asyncio
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from aiohttp import ClientError, ClientSession

from bench.ports import free_port
from tests.support.waiting import until_found

PROMETHEUS, PROMTOOL = Path("/usr/bin/prometheus"), Path("/usr/bin/promtool")
INTERVAL = 0.5
"""Seconds between two scrapes."""

_EVERY = f"{int(INTERVAL * 1000)}ms"
_GLOBAL = f"global: {{scrape_interval: {_EVERY}, scrape_timeout: {_EVERY}, evaluation_interval: {_EVERY}}}\n"
_RULES = "rule_files: [{file}]\n"
_MINUTE = 500
"""Milliseconds that a minute of the rules lasts."""
_SCRAPED = 'scrape_configs: [{{job_name: slb, static_configs: [{{targets: ["{target}"]}}]}}]\n'
_ALL = "[1h]"
_NOT_WHOM = {"__name__", "alertname", "alertstate", "severity", "job"}


class Sample(NamedTuple):
    at: float
    value: float


Series = list[Sample]
"""One series, in the order of time."""


class Prometheus:
    """`async with Prometheus(directory, "127.0.0.1:8081") as prometheus`; asked over `session`. `scraped`: the
    whole `scrape_configs` instead of that address; `rules`: the text of a file of rules, whose times pass 120 times
    as fast."""

    def __init__(
        self, directory: Path, target: str, session: ClientSession, scraped: str = "", rules: str = ""
    ) -> None:
        self._directory = directory / "prometheus"
        self._scraped = scraped or _SCRAPED.format(target=target)
        self._rules = rules
        self._session = session
        self._process: asyncio.subprocess.Process | None = None
        self._address = f"127.0.0.1:{free_port()}"

    async def __aenter__(self) -> "Prometheus":
        self._directory.mkdir()
        config = self._directory / "prometheus.yml"
        text = _GLOBAL + self._scraped
        if self._rules:
            file = self._directory / "rules.yaml"
            file.write_text(hastened(self._rules))
            text += _RULES.format(file=file)
        config.write_text(text)
        self._process = await asyncio.create_subprocess_exec(
            PROMETHEUS,
            f"--config.file={config}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={self._address}",
            "--log.level=warn",
        )
        try:
            await self.scraped(after=0.0)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()

    async def series(self, selector: str) -> list[Series]:
        """All samples of all series so far, as they were scraped."""
        found = await self._ask("query", query=selector + _ALL, time=time.time())
        return [[Sample(at, float(value)) for at, value in each["values"]] for each in found]

    async def range(self, query: str, start: float, end: float, step: float) -> Series:
        """What a query gave at each step; steps at which it gave nothing are left out."""
        found = await self._ask("query_range", query=query, start=start, end=end, step=step)
        return [Sample(at, float(value)) for each in found for at, value in each["values"]]

    async def instant(self, query: str) -> list[float]:
        """What a query gives now, one for each series."""
        return [float(each["value"][1]) for each in await self._ask("query", query=query, time=time.time())]

    async def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        found = await self.labels('ALERTS{alertstate="firing"}')
        return {each["alertname"] for each in found}

    async def alerts(self, since: float | None = None) -> set[str]:
        """The alerts that fire now, or have since that moment: the name of each, and the labels that say whom it is
        about, as in `SlbIsolated instance=127.0.0.1:8081 route=/p`."""
        query = 'ALERTS{alertstate="firing"}'
        if since is not None:
            query = f"max_over_time({query}[{round((time.time() - since) * 1000) + 1}ms])"
        return {
            " ".join([each["alertname"], *(f"{name}={each[name]}" for name in sorted(each.keys() - _NOT_WHOM))])
            for each in await self.labels(query)
        }

    async def descriptions(self) -> set[str]:
        """What the alerts that fire now, or soon will, say in their descriptions."""
        async with self._session.get(f"http://{self._address}/api/v1/alerts", raise_for_status=True) as reply:
            return {each["annotations"]["description"] for each in (await reply.json())["data"]["alerts"]}

    async def labels(self, query: str) -> list[dict[str, str]]:
        """Of each series that a query gives now."""
        return [each["metric"] for each in await self._ask("query", query=query, time=time.time())]

    async def scrapes(self) -> list[float]:
        """When it got an answer."""
        return [each.at for series in await self.series("up") for each in series if each.value == 1]

    async def scraped(self, after: float, timeout: float = 30.0) -> float:
        """Wait until it has got an answer that it asked for after this moment; when it asked."""

        async def later() -> list[float]:
            try:
                return [at for at in await self.scrapes() if at > after]
            except (ClientError, OSError):  # it is still starting
                return []

        return (await until_found(later, timeout))[0]

    async def _ask(self, what: str, **parameters: str | float) -> Any:
        url = f"http://{self._address}/api/v1/{what}"
        async with self._session.get(url, params=parameters, raise_for_status=True) as reply:
            return orjson.loads(await reply.read())["data"]["result"]


def hastened(rules: str) -> str:
    """The text of rules, in which a minute lasts `_MINUTE`: of their own times, and of how long a job may wait."""

    def shorter(found: re.Match[str]) -> str:
        minutes = int(found[2]) * (60 if found[3] == "h" else 1)
        return f"{found[1]}{minutes * _MINUTE}ms"

    def sooner(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) * _MINUTE / 60_000}"

    text = re.sub(r"(\[|for: |offset )(\d+)([mh])\b", shorter, rules)
    return re.sub(r"(slb_job_oldest_seconds\) > )(\d+)", sooner, text)


def substituted(expression: str) -> str:
    """A panel's expression with all that can be chosen on its dashboard chosen."""
    expression = expression.replace("$__rate_interval", "5m")
    return re.sub(r"\$(?:job|instance|route|upstream|model)\b", ".*", expression)


def growth(series: list[Series]) -> Series:
    """By how much counters grew from one scrape to the next, as rate() sees it: nothing at a series' first sample,
    and all of a value that is less than the one before."""
    return sorted(
        Sample(now.at, now.value - before.value if now.value >= before.value else now.value)
        for each in series
        for before, now in pairwise(each)
    )
