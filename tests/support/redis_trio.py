"""A master with two replicas, and three Sentinels that watch over them."""

import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from bench.ports import free_port
from tests.support.certificates import Authority
from tests.support.redis_nodes import HOST, NoMaster, RedisNode, closing
from tests.support.waiting import patience, wait_until

SERVICE = "mymaster"
_REPLICAS, _SENTINELS = 2, 3
_QUORUM = 2


class Trio:
    """`password` of Redis and `sentinel_password`, where they ask for one; `down_after`: seconds of silence after
    which a Sentinel takes a server for dead; one, on an idle machine. `options` are words for each Redis. With an
    `authority` all of them speak TLS."""

    def __init__(
        self,
        *options: str,
        password: str = "",
        sentinel_password: str = "",
        down_after: float | None = None,
        authority: Authority | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="slb-trio-"))
        self._passwords = password, sentinel_password
        self._authority = authority
        self._down_after = round((down_after or patience(1.0)) * 1000)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self.nodes = self._start_nodes(stack, options)
            self.sentinels = [self._start_sentinel(stack, number) for number in range(_SENTINELS)]
            wait_until(self.is_whole, 20.0, "a trio")
            self._stack = stack.pop_all()

    def _start_nodes(self, stack: ExitStack, options: tuple[str, ...]) -> list[RedisNode]:
        password, _ = self._passwords
        login = ("--requirepass", password, "--masterauth", password) if password else ()
        fixed = ("--save", "", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *login)
        first = closing(stack, self._node(*fixed, *options, password=password))
        more = (*fixed, "--replicaof", HOST, str(first.port), *options)
        replicas = [closing(stack, self._node(*more, password=password)) for _ in range(_REPLICAS)]
        nodes = [first, *replicas]
        wait_until(lambda: all(_is_linked(each) for each in replicas), 20.0, "replicas")
        return nodes

    def _node(self, *words: str, password: str) -> RedisNode:
        port = free_port()
        return RedisNode(self._folder / str(port), port, *words, password=password, authority=self._authority)

    def _start_sentinel(self, stack: ExitStack, number: int) -> RedisNode:
        password, own = self._passwords
        lines = [
            f"sentinel monitor {SERVICE} {HOST} {self.nodes[0].port} {_QUORUM}",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after}",
            f"sentinel failover-timeout {SERVICE} 3000",
            *([f"sentinel auth-pass {SERVICE} {password}"] if password else ()),
            *([f"requirepass {own}"] if own else ()),
        ]
        file = self._folder / f"sentinel-{number}.conf"
        file.write_text("".join(f"{line}\n" for line in lines))
        given = {"password": own, "config": file, "authority": self._authority}
        return closing(stack, RedisNode(self._folder, free_port(), "--sentinel", **given))  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """For `redis_url`."""
        password, own = self._passwords
        login = f":{password}@" if password else ""
        query = f"?sentinel_password={own}" if own else ""
        scheme = "redis"
        if self._authority is not None:
            scheme, query = "rediss", f"{query or '?'}&ssl_ca_certs={self._authority.file}"
        return f"{scheme}+sentinel://{login}{','.join(each.address for each in self.sentinels)}/{SERVICE}/0{query}"

    @property
    def master(self) -> RedisNode:
        """The one that most Sentinels name. Raises NoMaster."""
        named = [self._named_by(each) for each in self.sentinels]
        for node in self.nodes:
            if named.count(node.port) >= _QUORUM:
                return node
        raise NoMaster

    @property
    def admin(self) -> Any:
        """A blocking client of the master. Raises NoMaster."""
        return self.master.admin

    def primary_of(self, key: str) -> RedisNode:
        """The node that has it: the master. Raises NoMaster."""
        return self.master

    def admin_of(self, key: str) -> Any:
        """The same: it has every key."""
        return self.admin

    def _named_by(self, sentinel: RedisNode) -> int:
        with suppress(RedisError, OSError, TypeError):
            _, port = sentinel.admin.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            return int(port)
        return 0

    @property
    def primaries(self) -> list[RedisNode]:
        """The nodes that take writes."""
        return [self.master]

    def has_replaced(self, node: RedisNode) -> bool:
        """Whether another node is the master, and takes writes."""
        try:
            master = self.master
        except NoMaster:
            return False
        return master is not node and master.info("replication").get("role") == "master"

    def is_whole(self) -> bool:
        """Whether all servers and Sentinels know each other."""
        try:
            replicas = self.master.info("replication").get("connected_slaves")
            return replicas == _REPLICAS and all(map(self._knows_all, self.sentinels))
        except NoMaster:
            return False

    def _knows_all(self, sentinel: RedisNode) -> bool:
        try:
            known: Any = sentinel.admin.sentinel_master(SERVICE)
        except (RedisError, OSError):
            return False
        counts = int(known["num-slaves"]), int(known["num-other-sentinels"])
        return counts == (_REPLICAS, _SENTINELS - 1) and not known["is_sdown"]

    def mend(self) -> None:
        """All run, and follow one master."""
        for node in (*self.nodes, *self.sentinels):
            node.mend()
        wait_until(self.is_whole, 40.0, "a whole trio")

    def close(self) -> None:
        """Stop all, and remove everything."""
        self._stack.close()


def _is_linked(node: RedisNode) -> bool:
    return node.info("replication").get("master_link_status") == "up"
