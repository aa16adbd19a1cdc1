"""Host memory of exactly the requested size, which GPUs can copy from asynchronously."""

from __future__ import annotations

import mmap
import weakref

import torch

# Of frames: GPUs read them in whole lines.
ALIGNMENT_BYTES = 128


class HostMemory:
    """Anonymous memory, as a uint8 tensor.

    Unlike `pin_memory()`, whose allocator rounds up to a power of two, pinning does not enlarge it.
    """

    def __init__(self, count_bytes: int, *, pinned: bool) -> None:
        # A mapping of 0 bytes is not possible.
        self._mapping = mmap.mmap(-1, max(count_bytes, 1))
        self.tensor: torch.Tensor = torch.frombuffer(self._mapping, dtype=torch.uint8)[:count_bytes]
        self.pinned = pinned
        self.devices: set[torch.device] = set()  # whoever copies between the memory and a GPU adds it
        if pinned:
            pointer = self.tensor.data_ptr() if count_bytes else 0
            if pointer:
                _register(pointer, count_bytes)
                # The finalizer has the tensor, so that the memory is unregistered before it is unmapped.
                weakref.finalize(self, _unregister, pointer, self.tensor, self.devices)


def _register(pointer: int, count_bytes: int) -> None:
    code = int(torch.cuda.cudart().cudaHostRegister(pointer, count_bytes, 0))
    if code:
        raise MemoryError(f"CUDA cannot pin {count_bytes} bytes of host memory (error {code}): see ulimit -l")


def _unregister(pointer: int, tensor: torch.Tensor, devices: set[torch.device]) -> None:
    for device in devices:
        torch.cuda.synchronize(device)  # copies may be in flight
    torch.cuda.cudart().cudaHostUnregister(pointer)
    del tensor


def aligned(count_bytes: int) -> int:
    """Rounds up to a multiple of the alignment."""
    return -(-count_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
