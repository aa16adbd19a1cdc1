"""KV cache offloading of vLLM into host memory, encoded.

    vllm serve MODEL --kv-transfer-config '{
      "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {
        "spec_name": "EncodedOffloadingSpec", "spec_module_path": "narrowcast.integrations.vllm",
        "cpu_bytes_to_use": 64000000000}}'

Both interfaces of vLLM are supported: the current one, with `OffloadingSpec.get_worker`, and the previous one, with
`get_handlers`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from .._torch.kv_blocks import Blocks, EncodedBlocks, Pages
from .._torch.kv_transfers import Finished

__all__ = ["EncodedOffloadingSpec"]

# Of bfloat16 KV caches, with a margin.
EXPECTED_RATIO = 0.75
_HAS_WORKERS = hasattr(base, "OffloadingWorker")


def __dir__() -> list[str]:
    return sorted(__all__)


class EncodedOffloadingSpec(CPUOffloadingSpec):  # type: ignore[misc]
    """vLLM's `CPUOffloadingSpec`, with encoded blocks in host memory, and more of them.

    In `kv_connector_extra_config`, besides the options of `CPUOffloadingSpec`:

    cpu_bytes_to_use: host memory of all workers.
    expected_ratio: encoded bytes / raw bytes, by default 0.75. As many blocks are kept as fit at this ratio; if they
        take more, more memory is used, up to about `cpu_bytes_to_use / expected_ratio`, and a warning is logged.
    codec: by default "window".
    encoding_threads: for encoding on the CPU if the KV cache is there; by default all.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if getattr(getattr(self, "config", None), "canonical_layout", False):
            raise ValueError("canonical_layout is not possible with encoded blocks")
        ratio = float(self.extra_config.get("expected_ratio", EXPECTED_RATIO))
        if not 0 < ratio <= 1:
            raise ValueError(f"expected_ratio is {ratio}: it must be above 0 and at most 1")
        self._capacity_bytes = int(self.extra_config["cpu_bytes_to_use"]) // self._workers()
        self._blocks: EncodedBlocks | None = None
        # The manager of the base class hands out numbers: of chunks, which the previous interface calls blocks.
        name = "num_chunks" if _HAS_WORKERS else "num_blocks"
        setattr(self, name, int(getattr(self, name) / ratio))

    def _workers(self) -> int:
        parallel = self.config.parallel if _HAS_WORKERS else self.vllm_config.parallel_config
        return max(int(parallel.world_size), 1)

    def _value_type(self) -> Any:
        if _HAS_WORKERS:
            name = self.config.model.dtype
        else:
            name = self.vllm_config.cache_config.cache_dtype
            name = self.vllm_config.model_config.dtype if name == "auto" else name
        return {"fp8": "float8_e4m3"}.get(name, name)

    def _uses_shared_region(self) -> bool:
        return False  # every worker has its own memory, also where all hold the same values

    def _encoded_blocks(self, kv_caches: Any) -> EncodedBlocks:
        if self._blocks is None:
            tensors = [
                one.tensor if one.tensor.dim() == 2 else one.tensor.view(torch.int8).view(-1, one.page_size_bytes)
                for one in kv_caches.tensors
            ]
            groups = [
                [Pages(tensors[ref.tensor_idx].view(torch.int8), ref.page_size_bytes) for ref in refs]
                for refs in kv_caches.group_data_refs
            ]
            self._blocks = EncodedBlocks(
                groups,
                dtype=self._value_type(),
                capacity_bytes=self._capacity_bytes,
                codec=str(self.extra_config.get("codec", "window")),
                threads=int(self.extra_config.get("encoding_threads", 0)),
            )
        return self._blocks

    def get_worker(self, kv_caches: Any) -> Any:
        """The worker of the current interface."""
        return _Worker(self._encoded_blocks(kv_caches), self.blocks_per_chunk)

    def get_handlers(self, kv_caches: Any) -> Iterator[tuple[type, type, Any]]:
        """The handlers of the previous interface."""
        blocks = self._encoded_blocks(kv_caches)
        yield base.GPULoadStoreSpec, CPULoadStoreSpec, _Handler(blocks, self.block_size_factor, "store")
        yield CPULoadStoreSpec, base.GPULoadStoreSpec, _Handler(blocks, self.block_size_factor, "load")


def _transfers(gpu: Any, host: Any, factor: int) -> list[Blocks]:
    """The blocks of a transfer. Their keys are the numbers of blocks in host memory.

    A chunk in host memory has `factor` blocks of the GPU. A transfer may begin and end in the middle of one.
    """
    numbers, chunks = (np.asarray(one.block_ids, np.int64) for one in (gpu, host))
    found = []
    first_block = first_chunk = 0
    for group, (size, index) in enumerate(zip(gpu.group_sizes, gpu.block_indices, strict=True)):
        skip = index % factor
        end_block = first_block + size
        end_chunk = first_chunk + (-(-(skip + size) // factor) if size else 0)
        in_host = factor * chunks[first_chunk:end_chunk, None] + np.arange(factor)
        found.append(Blocks(group, numbers[first_block:end_block], in_host.reshape(-1)[skip : skip + size]))
        first_block, first_chunk = end_block, end_chunk
    if (first_block, first_chunk) != (len(numbers), len(chunks)):
        raise ValueError(
            f"{len(numbers)} GPU blocks and {len(chunks)} chunks do not match groups of {list(gpu.group_sizes)}"
        )
    return found


class _Worker(base.OffloadingWorker if _HAS_WORKERS else object):  # type: ignore[misc]
    def __init__(self, blocks: EncodedBlocks, factor: int) -> None:
        self._blocks, self._factor = blocks, factor

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._blocks.store(job_id, _transfers(src_spec, dst_spec, self._factor))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._blocks.load(job_id, _transfers(dst_spec, src_spec, self._factor))
        return True

    def get_finished(self) -> list[Any]:
        return [_result(one) for one in self._blocks.finished()]

    def wait(self, job_ids: set[int]) -> None:
        self._blocks.wait(job_ids)

    def shutdown(self) -> None:
        self._blocks.close()


def _result(one: Finished, **more: Any) -> Any:
    # Where each interface has it.
    module = base if _HAS_WORKERS else importlib.import_module("vllm.v1.kv_offload.worker.worker")
    return module.TransferResult(
        job_id=one.job, success=one.success, transfer_size=one.raw_bytes, transfer_time=one.seconds, **more
    )


class _Handler:
    """An `OffloadingHandler` of the previous interface."""

    def __init__(self, blocks: EncodedBlocks, factor: int, direction: str) -> None:
        self._blocks, self._factor, self._direction = blocks, factor, direction

    def transfer_async(self, job_id: int, spec: tuple[Any, Any]) -> bool:
        src, dst = spec
        if self._direction == "store":
            self._blocks.store(job_id, _transfers(src, dst, self._factor))
        else:
            self._blocks.load(job_id, _transfers(dst, src, self._factor))
        return True

    def get_finished(self) -> list[Any]:
        kind = ("GPU", "CPU") if self._direction == "store" else ("CPU", "GPU")
        return [_result(one, transfer_type=kind) for one in self._blocks.finished([self._direction])]

    def wait(self, job_ids: set[int]) -> None:
        self._blocks.wait(job_ids, [self._direction])

    def shutdown(self) -> None:
        self._blocks.close()
