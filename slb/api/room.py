"""How many connections the API listener takes.

Each holds a descriptor, and traffic needs them more: a client's connection, and one to its upstream. So the API
has a share of what this process may have open, whatever the settings say: a quarter beside traffic; half where
there is none, for the quota router's callers may be thousands. One address has no more than half of that, so that a
monitoring system and a probe still come in while one client takes all it can get.
"""

from slb.config import Settings

_BESIDE_TRAFFIC = 4
_ALONE = 2
_LINGERING = 8


def room(settings: Settings, open_files: int) -> tuple[int, int, int]:
    """Connections that are served, of them from one address (0: no limit), and that linger after they were refused,
    where `open_files` may be open."""
    share = open_files // (_BESIDE_TRAFFIC if "proxy" in settings.roles else _ALONE)
    limit = max(1, min(settings.api_max_connections or share, share))
    per_peer = min(settings.api_max_connections_per_peer, (limit + 1) // 2)
    return limit, per_peer, 1 + limit // _LINGERING
