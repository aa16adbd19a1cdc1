"""Tensors of torch that are kept encoded in host memory.

    narrowcast.torch.offload(model, device="cuda", units=model.layers)    # weights are decoded when they are needed
    table = narrowcast.torch.Table.from_pretrained(weight)                # an nn.Embedding in a store

`EncodedTensors` is a mapping of names to tensors, such as a state dict. `narrowcast.integrations` connects these
classes to frameworks.
"""

from __future__ import annotations

from ._torch.encoded import EncodedTensors, TensorInfo
from ._torch.offload import Offloaded, offload
from ._torch.table import SGD, RowwiseAdagrad, Table

__all__ = ["SGD", "EncodedTensors", "Offloaded", "RowwiseAdagrad", "Table", "TensorInfo", "offload"]


def __dir__() -> list[str]:
    return sorted(__all__)
