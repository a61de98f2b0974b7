"""A bounded cache that forgets what has not been asked for the longest."""

from collections import OrderedDict
from collections.abc import Iterator


class LruCache:
    """At most `capacity` keys. It holds no values: the lab only asks whether there would have been one."""

    __slots__ = ("_keys", "capacity")

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a cache of {capacity}")
        self.capacity = capacity
        self._keys: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[bytes]:
        """The longest unasked first."""
        return iter(self._keys)

    def get(self, key: bytes) -> bool:
        """Whether it is here; then it is the last to be forgotten."""
        if key not in self._keys:
            return False
        self._keys.move_to_end(key)
        return True

    def put(self, key: bytes) -> None:
        """Keep it, as the last to be forgotten."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self.capacity:
            self._keys.popitem(last=False)
