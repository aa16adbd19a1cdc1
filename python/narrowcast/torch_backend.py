"""A backend of torch.distributed: tensors of CPUs and GPUs, on communicators of Narrowcast.

    import narrowcast.torch_backend                      # registers "narrowcast"
    torch.distributed.init_process_group("narrowcast")

CPU tensors use the host backend, whose ranks are processes of one machine, and CUDA tensors the GPUs of one machine, if
there are any. The first collective with CUDA tensors creates the communicator of the GPUs. The backend has all
collectives, with the reductions SUM, PRODUCT, MIN, MAX, AVG, PREMUL_SUM, BAND, BOR and BXOR, all-reduces of sparse
tensors, send and recv.

CPU collectives run one after the other: on the calling thread if it would wait anyway, otherwise on another one.
Callbacks of their futures run on threads of their own, and may make calls. CPU messages are matched by source and tag,
as gloo's are, whatever the order of the calls, and a receive may name no source. CUDA calls run on the current stream,
and CUDA messages between two ranks are received in the order in which they were sent: their tags are ignored.

Invalid arguments raise RuntimeError. A call that fails raises its error where it is waited for, and as
`Work.exception()`; futures raise RuntimeError with its text. Calls that are in flight when the program ends are aborted
after half a second, on all ranks.
"""

from __future__ import annotations

import torch.distributed as dist

from ._c10d.collectives import Collectives
from ._c10d.group import NAME, devices

__all__ = ["NAME", "NarrowcastGroup"]


def __dir__() -> list[str]:
    return sorted(__all__)


class NarrowcastGroup(Collectives):
    """The process group of torch.distributed. Created by `init_process_group` and `new_group`."""


dist.Backend.register_backend(NAME, NarrowcastGroup, devices=devices())
