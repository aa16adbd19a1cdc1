"""Arrays of one size in GPU memory, each of which has a frame: one call encodes or decodes all of them.

Arrays and frames are given by addresses: an int64 tensor on the GPU. A call is enqueued on the current stream and
returns such a tensor with the sizes in bytes of what it writes; 0 for those with an error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from .._native import cuda_driver
from .._native.codecs import codec_number
from .._native.library import check, library
from ..types import ValueType


def to_device(numbers: Sequence[int] | npt.NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """An int64 tensor. The host does not wait until it is there."""
    values = torch.from_numpy(np.array(numbers, np.int64))
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def encode_workspace_bytes(count: int, raw_bytes: int, codec: str) -> int:
    """For encoding `count` arrays of `raw_bytes` together."""
    return int(library().ncast_cuda_encode_batch_workspace_bytes(count, raw_bytes, codec_number(codec))) if count else 0


def encode(
    arrays: torch.Tensor,
    elems: int,
    frames: torch.Tensor,
    capacity_bytes: int,
    dtype: ValueType,
    codec: str,
    workspace: torch.Tensor,
) -> torch.Tensor:
    """Encodes arrays of `elems` values into frames, for which there are `capacity_bytes` each."""
    sizes = torch.zeros_like(arrays)
    if not len(arrays):
        return sizes
    lengths, capacities = torch.full_like(arrays, elems), torch.full_like(arrays, capacity_bytes)
    kinds = torch.full_like(arrays, dtype.number, dtype=torch.int32)
    statuses = torch.empty_like(kinds)
    with cuda_driver.on_device(arrays.device.index):
        check(
            library().ncast_cuda_encode_batch(
                len(arrays),
                arrays.data_ptr(),
                kinds.data_ptr(),
                lengths.data_ptr(),
                codec_number(codec),
                0,
                frames.data_ptr(),
                capacities.data_ptr(),
                sizes.data_ptr(),
                statuses.data_ptr(),
                workspace.data_ptr(),
                workspace.numel(),
                None,
                torch.cuda.current_stream(arrays.device).cuda_stream,
            )
        )
    return sizes


def decode(
    frames: torch.Tensor, frame_bytes: torch.Tensor, arrays: torch.Tensor, capacity_bytes: int, codec: str
) -> torch.Tensor:
    """Decodes frames of `codec` or raw ones into arrays, for which there are `capacity_bytes` each."""
    sizes = torch.zeros_like(arrays)
    count = len(arrays)
    if not count:
        return sizes
    capacities = torch.full_like(arrays, capacity_bytes)
    statuses = torch.empty_like(arrays, dtype=torch.int32)
    workspace_bytes = int(library().ncast_cuda_decode_batch_workspace_bytes(count))
    workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=arrays.device)
    with cuda_driver.on_device(arrays.device.index):
        check(
            library().ncast_cuda_decode_batch(
                count,
                frames.data_ptr(),
                frame_bytes.data_ptr(),
                codec_number(codec),
                arrays.data_ptr(),
                capacities.data_ptr(),
                sizes.data_ptr(),
                statuses.data_ptr(),
                workspace.data_ptr(),
                workspace_bytes,
                None,
                torch.cuda.current_stream(arrays.device).cuda_stream,
            )
        )
    return sizes
