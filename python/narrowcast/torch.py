"""Tensors of torch that are kept encoded in host memory, and data parallelism that exchanges them with a codec.

    narrowcast.torch.offload(model, device="cuda", units=model.layers)    # weights are decoded when they are needed
    table = narrowcast.torch.Table.from_pretrained(weight)                # an nn.Embedding in a store
    ddp_model.register_comm_hook(narrowcast.torch.Compression("int8"), narrowcast.torch.compress_hook)

`EncodedTensors` is a mapping of names to tensors, such as a state dict. `narrowcast.integrations` connects these
classes to frameworks.
"""

from __future__ import annotations

from ._c10d.compression import Compression, compress_fsdp, compress_hook
from ._c10d.differences import Differences
from ._torch.encoded import EncodedTensors, TensorInfo
from ._torch.offload import Offloaded, offload
from ._torch.table import SGD, RowwiseAdagrad, Table

__all__ = [
    "SGD",
    "Compression",
    "Differences",
    "EncodedTensors",
    "Offloaded",
    "RowwiseAdagrad",
    "Table",
    "TensorInfo",
    "compress_fsdp",
    "compress_hook",
    "offload",
]


def __dir__() -> list[str]:
    return sorted(__all__)
