"""PromQL that many panels share. `%s` stands for the chosen instances: see `model.OURS`."""


def rate(metric: str, by: str = "", where: str = "") -> str:
    """A counter's growth a second, added up over instances, by these labels."""
    return f"{_sum(by)} (rate({metric}{{{_matchers(where)}}}[$__rate_interval]))"


def most(metric: str, by: str = "", where: str = "") -> str:
    """Of a gauge that every instance shows alike, or of which the highest counts."""
    return f"max{_by(by)} ({metric}{{{_matchers(where)}}})"


def least(metric: str, by: str = "", where: str = "") -> str:
    return f"min{_by(by)} ({metric}{{{_matchers(where)}}})"


def total(metric: str, by: str = "", where: str = "") -> str:
    """Of a gauge that each instance has its own part of."""
    return f"{_sum(by)} ({metric}{{{_matchers(where)}}})"


def global_rate(metric: str, by: str, where: str = "") -> str:
    """Of a counter that every instance shows alike."""
    return f"max{_by(by)} (rate({metric}{{{_matchers(where)}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, by: str = "", where: str = "") -> str:
    """Seconds that this share of all was faster than."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', f'{by}, le' if by else 'le', where)})"


def mean(metric: str, by: str, where: str = "") -> str:
    """Of a histogram or a summary."""
    return f"{rate(f'{metric}_sum', by, where)} / {rate(f'{metric}_count', by, where)}"


def errors(by: str, where: str = "") -> str:
    """The share of answers that are 5xx, or broke off, 0 to 1."""
    failed = 'code=~"5xx|broken"' + (f",{where}" if where else "")
    return f"{rate('slb_route_requests_total', by, failed)} / {rate('slb_route_requests_total', by, where)}"


def _matchers(where: str) -> str:
    return f"%s,{where}" if where else "%s"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""


def _sum(labels: str) -> str:
    return f"sum{_by(labels)}"
