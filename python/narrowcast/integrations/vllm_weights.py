"""Weight offloading of vLLM, with weights that are encoded in host memory.

    vllm serve MODEL --worker-cls narrowcast.integrations.vllm_weights.EncodedOffloadWorker \\
      --offload-backend prefetch --offload-group-size 4 --offload-num-in-group 3

vLLM has no registry of offloaders. Its worker classes can be replaced, and the worker of this module replaces vLLM's
`PrefetchOffloader` with one that fetches encoded weights.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.offloader import PrefetchOffloader, get_offloader, set_offloader
from vllm.v1.worker.gpu_worker import Worker

from .._torch.encoded import EncodedTensors, supported_codec
from .._torch.frame_reader import FrameReader

__all__ = ["EncodedOffloadWorker", "EncodedPrefetchOffloader"]


def __dir__() -> list[str]:
    return sorted(__all__)


class EncodedOffloadWorker(Worker):  # type: ignore[misc]
    """vLLM's worker for GPUs, whose weights are offloaded by `EncodedPrefetchOffloader`.

    In `additional_config`: `narrowcast_codec`, by default "window", and `narrowcast_threads`, for encoding on the CPU,
    by default all.
    """

    def init_device(self) -> None:
        """As vLLM's. Raises ValueError if the prefetch backend is not chosen."""
        super().init_device()
        if not isinstance(get_offloader(), PrefetchOffloader):
            raise ValueError("EncodedOffloadWorker needs --offload-backend prefetch and --offload-group-size")
        chosen = self.vllm_config.offload_config.prefetch
        options = self.vllm_config.additional_config or {}
        set_offloader(
            EncodedPrefetchOffloader(
                group_size=chosen.offload_group_size,
                num_in_group=chosen.offload_num_in_group,
                prefetch_step=chosen.offload_prefetch_step,
                offload_params=chosen.offload_params,
                codec=options.get("narrowcast_codec", "window"),
                threads=options.get("narrowcast_threads", 0),
            )
        )


class EncodedPrefetchOffloader(PrefetchOffloader):  # type: ignore[misc]
    """vLLM's `PrefetchOffloader`, with weights that are encoded in host memory once they are loaded.

    Which layers are offloaded, how many are fetched ahead, the buffers on the GPU and the capture in CUDA graphs are as
    in vLLM. Weights cannot be loaded again afterwards.

    codec: one of `narrowcast.codecs()`.
    threads: for encoding on the CPU; 0: the CPUs that this process may use.
    other: the arguments of `PrefetchOffloader`.

    Raises InvalidArgumentError for an unknown codec.
    """

    def __init__(self, *, codec: str = "window", threads: int = 0, **other: Any) -> None:
        super().__init__(**other)
        self._codec, self._threads = supported_codec(codec), threads
        self._layers: list[_Layer] = []
        self._reader: FrameReader | None = None

    def post_init(self) -> None:
        """Encodes the weights, which have been loaded, and begins to fetch the first layers."""
        super().post_init()
        # The first layers have been fetched as they were.
        self.copy_stream.synchronize()
        for module in self.module_offloaders:
            layer = _Layer(module, self._codec, self._threads)
            self._layers.append(layer)
            if self._reader is None:
                self._reader = FrameReader(layer.device, in_graphs=True)
            self._reader.reserve(layer.encoded.largest_frame_bytes)
        for number in range(min(self.prefetch_step, len(self._layers))):
            self._start_prefetch(number)

    def _start_prefetch(self, layer_idx: int) -> None:
        module = self.module_offloaders[layer_idx]
        capturing = torch.cuda.is_current_stream_capturing()
        module._prefetch_in_capture = capturing
        # The previous layer may still use the buffers. This also adds the copies to a graph that is being captured.
        fork = torch.cuda.Event()
        torch.cuda.current_stream().record_event(fork)
        self.copy_stream.wait_event(fork)
        with torch.cuda.stream(self.copy_stream):
            self._layers[layer_idx].fetch(self._reader)
            module._copy_done_event.record(self.copy_stream)
        module._event_valid_for_eager = not capturing

    def check(self) -> None:
        """Waits for the GPU and raises CorruptError if encoded weights no longer decode."""
        for layer in self._layers:
            layer.encoded.check()

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes of the weights (smaller is better); None if nothing is offloaded."""
        raw_bytes = sum(layer.encoded.raw_bytes for layer in self._layers)
        return sum(layer.encoded.wire_bytes for layer in self._layers) / raw_bytes if raw_bytes else None


class _Layer:
    """The encoded weights of a layer, and the buffers for them."""

    def __init__(self, module: Any, codec: str, threads: int) -> None:
        parts = module._param_offloaders
        self.device: torch.device = module.device
        self._outs = {name: _in_memory_order(one._gpu_buffer, name) for name, one in parts.items()}
        self.encoded = EncodedTensors(
            {name: _in_memory_order(one._cpu_storage, name) for name, one in parts.items()},
            device=self.device,
            codec=codec,
            threads=threads,
        )
        for one in parts.values():
            one._cpu_storage = None

    def fetch(self, reader: FrameReader | None) -> None:
        self.encoded.read_into(self._outs, reader=reader)


def _in_memory_order(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The values of a tensor that may be transposed, in one dimension."""
    if (
        tensor.numel()
        and 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        != tensor.numel()
    ):
        raise ValueError(f"the values of {name} are not adjacent in memory: choose others with --offload-params")
    return tensor.as_strided((tensor.numel(),), (1,))
