"""A feature store of PyTorch Geometric, whose tensors are encoded in host memory.

```python
features = StoreFeatures()
features["paper", "x", None] = x                           # encoded by narrowcast.store.build
features.attach(narrowcast.store.open("author.ncs"), "author", "x")
loader = NeighborLoader((features, graph_store), ...)
```
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_geometric.data import FeatureStore, TensorAttr

from .._torch.rows import built, fetch, gather
from .._torch.values import plain
from ..store import Store

__all__ = ["StoreFeatures"]


def __dir__() -> list[str]:
    return sorted(__all__)


class StoreFeatures(FeatureStore):  # type: ignore[misc]
    """Features by group and name, each in a `narrowcast.store.Store`.

    options: of `narrowcast.store.build`, for tensors that are put.

    Tensors are returned on the device of the index; whole tensors and slices on the CPU.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        # Through the dictionary, as PyG's own attributes: __setattr__ may be overridden.
        self.__dict__["_options"] = options
        self.__dict__["_stores"] = {}

    def attach(self, store: Store, group_name: Any, attr_name: str) -> None:
        """Adds an open store as a feature, in place of one with the same names. The caller closes it."""
        self._stores[group_name, attr_name] = store

    def store(self, group_name: Any, attr_name: str) -> Store:
        """The store of a feature. Raises KeyError."""
        return self._found(TensorAttr(group_name, attr_name))

    def _found(self, attr: TensorAttr) -> Store:
        try:
            found: Store = self._stores[attr.group_name, attr.attr_name]
        except KeyError:
            raise KeyError(f"there is no feature {attr.attr_name!r} of group {attr.group_name!r}") from None
        return found

    # What PyG asks for.

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        values = plain(tensor).cpu().contiguous() if isinstance(tensor, torch.Tensor) else np.ascontiguousarray(tensor)
        if attr.index is None or (isinstance(attr.index, slice) and attr.index == slice(None)):
            self._stores[attr.group_name, attr.attr_name] = built(values, **self._options)
        else:
            found = self._found(attr)
            found.update(_numbers(attr.index, len(found)), values)
        return True

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        found, index = self._found(attr), attr.index
        if index is None:
            return fetch(found, 0, len(found))
        if isinstance(index, slice):
            numbers = range(*index.indices(len(found)))
            return fetch(found, numbers.start if len(numbers) else 0, len(numbers), numbers.step)
        if isinstance(index, (int, np.integer)):
            return gather(found, _numbers(index, len(found)))[0]
        return gather(found, _numbers(index, len(found)))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        store = self._stores.get((attr.group_name, attr.attr_name))
        if store is None:
            return None
        if attr.index is None:
            return tuple(store.shape)
        if isinstance(attr.index, (int, np.integer)):
            return tuple(store.row_shape)
        return (*_numbers(attr.index, len(store)).shape, *store.row_shape)

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return self._stores.pop((attr.group_name, attr.attr_name), None) is not None

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """Changes a feature: all of it, or in place the rows that the index of the attribute names."""
        attr = self._tensor_attr_cls.cast(*args, **kwargs)
        self._found(attr)
        return bool(self.put_tensor(tensor, attr))

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The group and name of each feature."""
        return [TensorAttr(group_name, attr_name) for group_name, attr_name in self._stores]

    def __len__(self) -> int:
        return len(self._stores)

    def __repr__(self) -> str:
        return f"StoreFeatures({len(self)} features)"


def _numbers(index: Any, rows: int) -> torch.Tensor:
    """The row numbers that an index of PyG names. Negative ones count from the end."""
    if isinstance(index, slice):
        chosen = range(*index.indices(rows))
        return torch.arange(len(chosen)) * chosen.step + chosen.start
    if isinstance(index, (int, np.integer)):
        number = int(index)
        return torch.tensor([number + rows if number < 0 else number])
    numbers = torch.as_tensor(index)
    if numbers.dtype == torch.bool:
        if numbers.shape != (rows,):
            raise IndexError(f"the mask has shape {tuple(numbers.shape)}, but the feature has {rows} rows")
        return numbers.nonzero().reshape(-1)
    return torch.where(numbers < 0, numbers + rows, numbers)
