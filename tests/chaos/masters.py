"""The Redis of a long run where it fails over by itself: Sentinel's trio, or a cluster."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Cut
from redis.retry import Retry

from slb.control.hash_slots import slot_of
from slb.control.keys import pool_keys
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_nodes import HOST, RedisNode
from tests.support.redis_trio import Trio
from tests.support.waiting import patience, wait_until

_COUNTED = pool_keys("/p")[0]
_SOCKET = "redis.sock"
_SILENT_SECONDS = 2.0
"""After which a master is taken for dead: longer than the gentle faults hold one up."""

_REPLACED_SECONDS = 30.0
_TRIES = 3


class Masters:
    """Those of `redis`; `place`: a folder of its own. A gentle fault is done to the master that has the counts.
    `address` leads to that one: a link to its socket, which is set anew after a failover."""

    def __init__(self, redis: Trio | RedisCluster) -> None:
        self.redis = redis
        self.url = redis.url
        self.place = Path(tempfile.mkdtemp(prefix="slb-chaos-redis-"))
        self.address = self.place / _SOCKET
        self._clients: dict[int, Any] = {}
        self._frozen: list[RedisNode] = []
        self.restore_address()

    @classmethod
    def of_sentinel(cls) -> "Masters":
        return cls(Trio("--unixsocket", _SOCKET, down_after=patience(_SILENT_SECONDS)))

    @classmethod
    def of_cluster(cls) -> "Masters":
        return cls(RedisCluster("--unixsocket", _SOCKET, node_timeout=patience(_SILENT_SECONDS)))

    @property
    def admin(self) -> Any:
        """A blocking client of the master that has the counts; it connects again when it is cut."""
        return self.admin_of(_COUNTED)

    def admin_of(self, key: str) -> Any:
        """The same, of the master that has the key. Raises NoMaster."""
        return self.client(self.redis.primary_of(key))

    def client(self, node: RedisNode) -> Any:
        """The same, of any node."""
        if node.port not in self._clients:
            retry = Retry(NoBackoff(), _TRIES, supported_errors=(Cut,))
            self._clients[node.port] = Redis(
                host=HOST, port=node.port, decode_responses=True, protocol=2, retry=retry
            )
        return self._clients[node.port]

    @property
    def version(self) -> str:
        """As the servers name themselves."""
        found: Mapping[str, Any] = self.admin.info("server")
        return f"redis {found['redis_version']}, {type(self.redis).__name__}"

    @property
    def run_id(self) -> str:
        """Of the master that has the counts."""
        return str(self.admin.info("server")["run_id"])

    def freeze(self) -> None:
        """The master that has the counts holds its connections and answers nothing."""
        self._frozen.append(self.redis.primary_of(_COUNTED))
        self._frozen[-1].freeze()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        self._frozen.pop().thaw()

    def take(self, rng: Random) -> RedisNode:
        """A master that something is to be done to: in half of all cases the one that has the counts."""
        return self.redis.primary_of(_COUNTED) if rng.random() < 0.5 else rng.choice(self.redis.primaries)

    def until_replaced(self, old: RedisNode) -> None:
        """Another takes its place."""
        wait_until(lambda: self.redis.has_replaced(old), _REPLACED_SECONDS, "another master")
        self.restore_address()

    def mend(self) -> None:
        """All run, and follow their masters."""
        self.redis.mend()
        self.restore_address()

    def restore_address(self) -> None:
        """Who connects to the address from now on meets the master that has the counts."""
        there = self.place / "new"
        there.symlink_to(self.redis.primary_of(_COUNTED).folder / _SOCKET)
        there.rename(self.address)

    def close(self) -> None:
        """Stop all, and remove everything."""
        for client in self._clients.values():
            client.close()
        self.redis.close()
        shutil.rmtree(self.place, ignore_errors=True)

    # -- what only some of them can

    def give_up(self, old: RedisNode) -> None:
        """A replica takes over from a master that is well, as an administrator has it do."""
        if isinstance(self.redis, Trio):
            self.redis.sentinels[0].admin.execute_command("SENTINEL", "FAILOVER", "mymaster")
        else:
            replica = next(each for each in self.redis.nodes if self._follows(each, old))
            replica.admin.cluster("failover")

    @staticmethod
    def _follows(node: RedisNode, master: RedisNode) -> bool:
        found = node.info("replication")
        return found.get("role") == "slave" and found.get("master_port") == master.port

    def move_counts(self, rng: Random) -> None:
        """Of a cluster: the slot that has the counts moves to another master, key by key, as resharding does it."""
        slot, source = slot_of(_COUNTED), self.redis.primary_of(_COUNTED)
        target = rng.choice([each for each in self.redis.primaries if each is not source])
        source_id, target_id = (each.admin.cluster("myid") for each in (source, target))
        target.admin.cluster("setslot", slot, "importing", source_id)
        source.admin.cluster("setslot", slot, "migrating", target_id)
        while names := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 10):
            source.admin.migrate(HOST, target.port, names, 0, 5000)
        for node in (target, source, *self.redis.primaries):
            node.admin.cluster("setslot", slot, "node", target_id)
        self.restore_address()
