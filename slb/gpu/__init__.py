"""For GPU servers behind the job dispatcher: direct calls first, and no more at once than the GPU has slots.

`slb.gpu.asgi` and `slb.gpu.aiohttp` put it in front of a server's own code. This folder needs nothing else of slb,
and imports relative to itself: a server may take it alone.
"""

from .slots import GpuBusy, GpuSlots, Place, QueueFull, Refusal

__all__ = ["GpuBusy", "GpuSlots", "Place", "QueueFull", "Refusal"]
