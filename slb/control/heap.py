"""The garbage collector and large tables: a full collection walks every object of a table, to find nothing, and
holds the event loop for a tenth of a second while it does."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


class Heap:
    """Keeps the collector away while a table is made, and then away from the table."""

    def __init__(self, worthwhile: int = 1000) -> None:
        self._worthwhile = worthwhile
        self._grown = 0

    @contextmanager
    def building(self) -> Iterator[None]:
        """No collections meanwhile: what is built is not garbage."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_enabled:
                gc.enable()

    def grown(self, routes: int) -> None:
        """Tell how many routes were made. After enough of them what is alive is frozen: collected around from now
        on, and still freed when nobody refers to it. Rare enough that garbage caught in it does not add up."""
        self._grown += routes
        if self._grown >= self._worthwhile:
            self._grown = 0
            gc.freeze()
