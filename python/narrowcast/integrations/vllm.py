"""KV cache offloading of vLLM into host memory, encoded.

vllm serve MODEL --kv-transfer-config '{
  "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
  "kv_connector_extra_config": {
    "spec_name": "EncodedOffloadingSpec", "spec_module_path": "narrowcast.integrations.vllm",
    "cpu_bytes_to_use": 64000000000}}'
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from vllm.v1.kv_offload import base
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from .._torch.kv_blocks import Blocks, EncodedBlocks, Pages

__all__ = ["EncodedOffloadingSpec"]

# Of bfloat16 KV caches, with a margin.
EXPECTED_RATIO = 0.75


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

    num_chunks: int

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self.config.canonical_layout:
            raise ValueError("canonical_layout is not possible with encoded blocks")
        ratio = float(self.extra_config.get("expected_ratio", EXPECTED_RATIO))
        if not 0 < ratio <= 1:
            raise ValueError(f"expected_ratio is {ratio}: it must be above 0 and at most 1")
        workers = max(int(self.config.parallel.world_size), 1)
        self._capacity_bytes = int(self.extra_config["cpu_bytes_to_use"]) // workers
        self._blocks: EncodedBlocks | None = None
        self.num_chunks = int(self.num_chunks / ratio)  # whose numbers the manager of the base class hands out

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
                dtype={"fp8": "float8_e4m3"}.get(self.config.model.dtype, self.config.model.dtype),
                capacity_bytes=self._capacity_bytes,
                codec=str(self.extra_config.get("codec", "window")),
                threads=int(self.extra_config.get("encoding_threads", 0)),
            )
        return self._blocks

    def get_worker(self, kv_caches: Any) -> Any:
        """The worker that copies blocks between the KV cache and host memory; vLLM calls it."""
        return _Worker(self._encoded_blocks(kv_caches), self.blocks_per_chunk)


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


class _Worker(base.OffloadingWorker):  # type: ignore[misc]
    def __init__(self, blocks: EncodedBlocks, factor: int) -> None:
        self._blocks, self._factor = blocks, factor

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._blocks.store(job_id, _transfers(src_spec, dst_spec, self._factor))
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        self._blocks.load(job_id, _transfers(dst_spec, src_spec, self._factor))
        return True

    def get_finished(self) -> list[Any]:
        return [
            base.TransferResult(
                job_id=one.job, success=one.success, transfer_size=one.raw_bytes, transfer_time=one.seconds
            )
            for one in self._blocks.finished()
        ]

    def wait(self, job_ids: set[int]) -> None:
        self._blocks.wait(job_ids)

    def shutdown(self) -> None:
        self._blocks.close()
