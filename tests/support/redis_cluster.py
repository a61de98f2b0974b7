"""A Redis Cluster of three primaries, each with a replica."""

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from bench.ports import free_port
from slb.control.hash_slots import SLOTS, slot_of
from tests.support.certificates import Authority
from tests.support.redis_nodes import HOST, NoMaster, RedisNode, closing
from tests.support.waiting import patience, wait_until

_PRIMARIES = 3


class RedisCluster:
    """`password`, where it asks for one; `node_timeout`: seconds of silence after which a node is taken for dead;
    two, on an idle machine. `options` are words for each node. With an `authority` all of them
    speak TLS."""

    def __init__(
        self,
        *options: str,
        password: str = "",
        node_timeout: float | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="slb-cluster-"))
        self._password = password
        self._authority = authority
        login = ("--requirepass", password, "--masterauth", password) if password else ()
        timeout = str(round((node_timeout or patience(2.0)) * 1000))
        words = ("--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--save", "", *login, *options)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self.nodes = [closing(stack, self._node(*words)) for _ in range(2 * _PRIMARIES)]
            self._join()
            self._stack = stack.pop_all()

    def _node(self, *words: str) -> RedisNode:
        port, bus = free_port(), free_port()
        more = ("--cluster-port", str(bus), "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        given = {"password": self._password, "authority": self._authority}
        node = RedisNode(self._folder / str(port), port, *words, *more, **given)  # type: ignore[arg-type]
        node.bus = bus
        return node

    def _join(self) -> None:
        first, *others = self.nodes
        for index, node in enumerate(self.nodes[:_PRIMARIES]):
            start, end = (SLOTS * each // _PRIMARIES for each in (index, index + 1))
            node.admin.cluster("addslotsrange", start, end - 1)
            node.admin.cluster("set-config-epoch", index + 1)
        for node in others:
            node.admin.execute_command("CLUSTER", "MEET", HOST, first.port, first.bus)
        wait_until(lambda: all(len(_nodes(each)) == len(self.nodes) for each in self.nodes), 20.0, "a cluster")
        for primary, replica in zip(self.nodes[:_PRIMARIES], self.nodes[_PRIMARIES:], strict=True):
            replica.admin.cluster("replicate", primary.admin.cluster("myid"))
        wait_until(self.is_whole, 20.0, "a whole cluster")

    @property
    def url(self) -> str:
        """For `redis_url`."""
        login = f":{self._password}@" if self._password else ""
        nodes = ",".join(each.address for each in self.nodes[:_PRIMARIES])
        if self._authority is None:
            return f"redis+cluster://{login}{nodes}"
        return f"rediss+cluster://{login}{nodes}?ssl_ca_certs={self._authority.file}"

    @property
    def primaries(self) -> list[RedisNode]:
        """Those that have slots, as most nodes have it."""
        return list(dict.fromkeys(node for _, _, node in self._ranges()))

    def primary_of(self, key: str) -> RedisNode:
        """The node that has it. Raises NoMaster."""
        slot = slot_of(key)
        for first, last, node in self._ranges():
            if first <= slot <= last:
                return node
        raise NoMaster

    def admin_of(self, key: str) -> Any:
        """A blocking client of that node. Raises NoMaster."""
        return self.primary_of(key).admin

    @property
    def admin(self) -> Any:
        """A blocking client of some primary."""
        return self.primaries[0].admin

    def _ranges(self) -> list[tuple[int, int, RedisNode]]:
        """As that node has it that knows of the latest failover."""
        views = [view for node in self.nodes if (view := _nodes(node))]
        if not views:
            raise NoMaster
        latest = max(views, key=lambda view: max(int(each["epoch"]) for each in view.values()))
        by_port = {node.port: node for node in self.nodes}
        found = []
        for address, each in latest.items():
            if "master" in each["flags"] and "fail" not in each["flags"].split(","):
                node = by_port[int(address.rpartition(":")[2])]
                found += [(int(slots[0]), int(slots[-1]), node) for slots in each["slots"]]
        return sorted(found, key=lambda each: each[0])

    def has_replaced(self, node: RedisNode) -> bool:
        """Whether all slots are with others, and those take writes."""
        try:
            primaries = self.primaries
        except NoMaster:
            return False
        return (
            node not in primaries
            and len(primaries) == _PRIMARIES
            and all(_state(each) == "ok" for each in self.nodes if each.answers())
        )

    def is_whole(self) -> bool:
        """Whether each primary has a replica that follows it, and all agree."""
        try:
            primaries = self.primaries
        except NoMaster:
            return False
        replicas = [node for node in self.nodes if node not in primaries]
        linked = all(each.info("replication").get("master_link_status") == "up" for each in replicas)
        served = [each.info("replication").get("connected_slaves") for each in primaries]
        whole = linked and served == [1] * _PRIMARIES and all(_state(each) == "ok" for each in self.nodes)
        return whole and all(_lists_replicas(each) for each in self.nodes)

    def mend(self) -> None:
        """All run, and follow one another."""
        for node in self.nodes:
            node.mend()
        wait_until(self.is_whole, 40.0, "a whole cluster")

    def close(self) -> None:
        """Stop all, and remove everything."""
        self._stack.close()


def _nodes(node: RedisNode) -> dict[str, Any]:
    """What it knows of all nodes; empty where it does not answer."""
    try:
        found: dict[str, Any] = node.admin.cluster("nodes")
    except (RedisError, OSError):
        return {}
    return found


def _state(node: RedisNode) -> str:
    try:
        return str(node.admin.cluster("info")["cluster_state"])
    except (RedisError, OSError):
        return ""


def _lists_replicas(node: RedisNode) -> bool:
    """Whether CLUSTER SLOTS has them: not before it has heard how far they have come."""
    try:
        found: Any = node.admin.execute_command("CLUSTER", "SLOTS")
    except (RedisError, OSError):
        return False
    ranges = found.values() if isinstance(found, dict) else found
    return all(each["replicas"] if isinstance(each, dict) else each[3:] for each in ranges)
