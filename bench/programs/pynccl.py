"""Calls NCCL as vLLM does: through its own unmodified pynccl_wrapper.py, with one process per GPU.

    torchrun --nproc-per-node 2 pynccl.py vllm/distributed/device_communicators/pynccl_wrapper.py --json pynccl.json

vLLM need not be installed: the modules that the file imports (logger, platform, the search for NCCL) are replaced by
minimal ones. NCCL is opened by the path in VLLM_NCCL_SO_PATH, or else by its name.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from ranks import Job, parser

COUNTS = (1, 1003, 300_001)
TYPES = (torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
TIMED_BYTES = (16 << 20, 256 << 20)
CALLS_A_GRAPH = 5


def find_nccl_library() -> str:
    return os.environ.get("VLLM_NCCL_SO_PATH") or "libnccl.so.2"


def init_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    for level in ("info", "warning", "error"):
        setattr(logger, f"{level}_once", getattr(logger, level))
    return logger


# Attributes of vLLM with a defined value. All others are functions that do nothing.
ANSWERS: dict[str, Any] = {
    "init_logger": init_logger,
    "find_nccl_library": find_nccl_library,
    "current_platform": SimpleNamespace(fp8_dtype=lambda: torch.float8_e4m3fn, is_rocm=lambda: False),
    "VLLM_USE_NCCL_SYMM_MEM": False,
    "VLLM_NCCL_SO_PATH": os.environ.get("VLLM_NCCL_SO_PATH"),
}


class FakeModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Creates the modules of vLLM that the file imports."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] != "vllm":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        def answer(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return ANSWERS.get(name, lambda *_, **__: None)

        # Submodules must be imported and not looked up as attributes.
        module.__dict__["__getattr__"] = answer


def wrapper_of(path: Path) -> ModuleType:
    sys.meta_path.insert(0, FakeModules())
    # `from vllm import envs` looks for an attribute before a module.
    ANSWERS["envs"] = importlib.import_module("vllm.envs")
    spec = importlib.util.spec_from_file_location("pynccl_wrapper", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynccl_wrapper"] = module
    spec.loader.exec_module(module)
    return module


class Communicator:
    """Uses the wrapper as vLLM's PyNcclCommunicator does."""

    def __init__(self, wrapper: ModuleType, rank: int, ranks: int) -> None:
        self.wrapper, self.nccl = wrapper, wrapper.NCCLLibrary(find_nccl_library())
        unique = self.nccl.ncclGetUniqueId() if rank == 0 else wrapper.ncclUniqueId()
        shared = [bytes(unique)]
        dist.broadcast_object_list(shared, 0)
        ctypes.memmove(ctypes.byref(unique), shared[0], len(shared[0]))
        self.comm = self.nccl.ncclCommInitRank(ranks, unique, rank)

    def call(self, name: str, *arguments: Any) -> None:
        """arguments: tensors, their types, and numbers."""
        stream = self.wrapper.cudaStream_t(torch.cuda.current_stream().cuda_stream)
        getattr(self.nccl, name)(*map(self._as_c, arguments), self.comm, stream)

    def _as_c(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.wrapper.buffer_type(value.data_ptr())
        return self.wrapper.ncclDataTypeEnum.from_torch(value) if isinstance(value, torch.dtype) else value


def compare(job: Job, it: Communicator, count: int, kind: torch.dtype, summed: int) -> None:
    rank, ranks, what = job.rank, job.ranks, f"{count} x {kind}"
    seeded = torch.Generator(job.device).manual_seed(0)
    every = torch.randint(1, 5, (ranks, ranks * count), generator=seeded, device=job.device).to(kind)
    own, long = every[rank, :count].clone(), every[rank].clone()
    got, gathered = torch.zeros_like(own), torch.zeros_like(long)
    part = slice(rank * count, (rank + 1) * count)
    total = every.sum(0).to(kind)
    it.call("ncclAllReduce", own, got, count, kind, summed)
    job.same(got, total[:count], f"ncclAllReduce of {what}")
    # Older versions of the file lack some functions.
    if hasattr(it.nccl, "ncclAllGather"):
        it.call("ncclAllGather", own, gathered, count, kind)
        job.same(gathered, every[:, :count].flatten(), f"ncclAllGather of {what}")
    if hasattr(it.nccl, "ncclReduceScatter"):
        it.call("ncclReduceScatter", long, got, count, kind, summed)
        job.same(got, total[part], f"ncclReduceScatter of {what}")
    if hasattr(it.nccl, "ncclReduce"):
        it.call("ncclReduce", own, got, count, kind, summed, 0)
        if rank == 0:
            job.same(got, total[:count], f"ncclReduce of {what}")
    if hasattr(it.nccl, "ncclBroadcast"):
        for root in range(ranks):
            it.call("ncclBroadcast", own, got, count, kind, root)
            job.same(got, every[root, :count], f"ncclBroadcast from {root} of {what}")
    if hasattr(it.nccl, "ncclSend") and hasattr(it.nccl, "ncclGroupStart"):
        it.nccl.ncclGroupStart()
        it.call("ncclSend", own, count, kind, (rank + 1) % ranks)
        it.call("ncclRecv", got, count, kind, (rank - 1) % ranks)
        it.nccl.ncclGroupEnd()
        job.same(got, every[rank - 1, :count], f"ncclSend and ncclRecv of {what}")


def timed(job: Job, it: Communicator, size: int, summed: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Calls with bfloat16 values whose larger buffer has the given number of bytes."""
    kind, count = torch.bfloat16, size // 2
    values = torch.randn(count, device=job.device).to(kind)
    out, part = torch.empty_like(values), count // job.ranks
    yield "ncclAllReduce", lambda: it.call("ncclAllReduce", values, out, count, kind, summed)
    if hasattr(it.nccl, "ncclAllGather"):
        yield "ncclAllGather", lambda: it.call("ncclAllGather", values, out, part, kind)
    if hasattr(it.nccl, "ncclReduceScatter"):
        yield "ncclReduceScatter", lambda: it.call("ncclReduceScatter", values, out, part, kind, summed)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("wrapper", type=Path, help="vLLM's pynccl_wrapper.py")
    chosen = options.parse_args()
    wrapper = wrapper_of(chosen.wrapper)
    job = Job(chosen)
    it = Communicator(wrapper, job.rank, job.ranks)
    job.facts |= {"version": it.nccl.ncclGetVersion(), "functions": sorted(it.nccl._funcs)}
    summed = wrapper.ncclRedOpTypeEnum.from_torch(dist.ReduceOp.SUM)
    for count in COUNTS:
        for kind in TYPES:
            compare(job, it, count, kind, summed)
    for size in TIMED_BYTES:
        for name, call in timed(job, it, size, summed):
            graph = job.graph(lambda call=call: [call() for _ in range(CALLS_A_GRAPH)])
            job.seconds[f"{name}, {size >> 20} MiB"] = job.median(graph, 5) / CALLS_A_GRAPH
    job.drop_graphs()
    it.nccl.ncclCommDestroy(it.comm)
    job.end()


if __name__ == "__main__":
    main()
