"""Tables of embeddings whose rows are encoded in host memory, and optimizers for them."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .. import store as _store
from ..store import Store
from .rows import built, gather, row_type
from .values import plain


class Table(nn.Module):  # type: ignore[misc]
    """As `nn.Embedding`: returns rows of a table by index. The table is a `narrowcast.store.Store`.

    store: the rows; the module does not close it.
    padding_idx: the row with this index gets no gradient, as in `nn.Embedding`; it may be negative.
    trained: collect gradients for an optimizer of this module, `SGD` or `RowwiseAdagrad`. Only in training mode and
        where gradients are enabled; the rows returned then require a gradient.

    The table is not a parameter and not in the state dict: `table.store.save(path)` saves it. `half()`, `to(dtype)` and
    the like convert the rows that are returned, not the store. A table cannot be copied or pickled (TypeError).
    """

    def __init__(self, store: Store, *, padding_idx: int | None = None, trained: bool = False) -> None:
        super().__init__()
        rows = len(store)
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise ValueError(f"padding_idx is {padding_idx}, but the table has {rows} rows")
        if trained and not row_type(store).is_floating_point:
            raise ValueError(f"a table of {store.dtype} values has no gradients")
        self.store: Store = store
        self.padding_idx: int | None = None if padding_idx is None else padding_idx % rows
        self.trained: bool = trained
        self.dtype: torch.dtype = row_type(store)  # of the rows that are returned
        self._gradients: list[tuple[torch.Tensor, torch.Tensor]] = []

    @classmethod
    def from_pretrained(
        cls, source: Any, *, padding_idx: int | None = None, trained: bool = False, **options: Any
    ) -> Table:
        """A table of the rows of an array, such as the weight of an `nn.Embedding`, or of a table file.

        source: an array or tensor, or the path of a file that `narrowcast.store.build` wrote.
        options: of `narrowcast.store.build` for arrays, and of `narrowcast.store.open` for paths.
        """
        if isinstance(source, (str, os.PathLike)):
            store = _store.open(source, **options)
        else:
            store = built(plain(source).cpu() if isinstance(source, torch.Tensor) else source, **options)
        return cls(store, padding_idx=padding_idx, trained=trained)

    @property
    def num_embeddings(self) -> int:
        """Rows of the table."""
        return len(self.store)

    @property
    def embedding_dim(self) -> int:
        """Values of a row."""
        return math.prod(self.store.row_shape)

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """The rows at `indices`, of shape (*indices.shape, *row_shape), on the device of the indices.

        If the indices are on a GPU, it reads the rows itself, in the order of the current stream.

        Raises IndexError for indices out of range, negative ones included. On a GPU these yield zeros, and `check`
        raises.
        """
        rows = gather(self.store, indices)
        if self.trained and self.training and torch.is_grad_enabled():
            rows.requires_grad_()
            collected = self._gradients

            def collect(leaf: torch.Tensor) -> None:
                collected.append((indices.detach().reshape(-1), leaf.grad))
                leaf.grad = None

            rows.register_post_accumulate_grad_hook(collect)
        return rows.to(self.dtype)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Table:
        super()._apply(fn, recurse)
        self.dtype = fn(torch.empty(0, dtype=self.dtype)).dtype
        return self

    def check(self) -> None:
        """Waits for reads on GPUs and raises what they have found since the last check.

        Raises IndexError for indices out of range, and CorruptError for rows that could not be decoded.
        """
        self.store.check()

    def sparse_gradient(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Indices without duplicates, in ascending order, and the sum of their gradients since the last step.

        Sums are float32 (float64 for float64).
        """
        kind = torch.float64 if row_type(self.store) == torch.float64 else torch.float32
        if not self._gradients:
            return torch.empty(0, dtype=torch.int64), torch.empty((0, *self.store.row_shape), dtype=kind)
        shape = self.store.row_shape
        indices = torch.cat([one.long() for one, _ in self._gradients])
        gradients = torch.cat([one.reshape(-1, *shape).to(kind) for _, one in self._gradients])
        if self.padding_idx is not None:
            kept = indices != self.padding_idx
            indices, gradients = indices[kept], gradients[kept]
        unique, places = torch.unique(indices, return_inverse=True)
        sums = torch.zeros((len(unique), *shape), dtype=kind, device=gradients.device)
        return unique, sums.index_add_(0, places, gradients)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients."""
        super().zero_grad(set_to_none)
        self._gradients.clear()

    def extra_repr(self) -> str:
        """The sizes, value type and codec, as `repr()` shows them."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return (
            f"{self.num_embeddings}, {self.embedding_dim}{padding}, dtype={self.store.dtype}, codec={self.store.codec}"
        )


class _Optimizer(abc.ABC):
    def __init__(self, tables: Table | Iterable[Table], lr: float) -> None:
        self.tables = [tables] if isinstance(tables, Table) else list(tables)
        for i, table in enumerate(self.tables):
            if not isinstance(table, Table) or not table.trained:
                raise ValueError(f"tables[{i}] is not a Table with trained=True")
        if not lr > 0 or math.isinf(lr):
            raise ValueError(f"lr is {lr}: it must be positive")
        self.lr = lr

    def zero_grad(self) -> None:
        """Forgets the gradients of the tables."""
        for table in self.tables:
            table.zero_grad()

    def step(self) -> None:
        """Updates the rows that have gradients, each of them once, and forgets the gradients.

        Raises what `Store.update` raises if a table has no space for changed rows; nothing of that table has changed
        then, and its gradients are kept.
        """
        for number, table in enumerate(self.tables):
            indices, gradients = table.sparse_gradient()
            if len(indices):
                rows = gather(table.store, indices)
                new = self._updated(number, indices, rows.to(gradients.dtype), gradients).to(rows.dtype)
                table.store.update(indices.cpu(), new.cpu())
                self._accepted(number, indices)
            table.zero_grad()

    @abc.abstractmethod
    def _updated(self, number: int, indices: torch.Tensor, rows: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        """The new rows of table `number`, for its rows at `indices`."""

    def _accepted(self, number: int, indices: torch.Tensor) -> None:  # noqa: B027
        """Called when the table has the new rows: state that depends on them changes now."""


class SGD(_Optimizer):
    """Stochastic gradient descent for tables: row -= lr * gradient."""

    def _updated(self, number: int, indices: torch.Tensor, rows: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        return rows - self.lr * gradients


class RowwiseAdagrad(_Optimizer):
    """Adagrad with one accumulator per row: the sum of the mean squares of its gradients, in float32.

    eps: added to the root of the accumulator.
    """

    def __init__(self, tables: Table | Iterable[Table], lr: float = 0.01, *, eps: float = 1e-8) -> None:
        super().__init__(tables, lr)
        self.eps = eps
        self._sums = [torch.zeros(len(table.store)) for table in self.tables]
        self._next: torch.Tensor | None = None

    def _updated(self, number: int, indices: torch.Tensor, rows: torch.Tensor, gradients: torch.Tensor) -> torch.Tensor:
        missing = len(self.tables[number].store) - len(self._sums[number])
        if missing > 0:  # rows were appended
            self._sums[number] = torch.cat([self._sums[number], torch.zeros(missing)])
        squares = gradients.reshape(len(gradients), -1).square().mean(1)
        sums = self._sums[number][indices.cpu()] + squares.float().cpu()
        self._next = sums
        scale = self.lr / (sums.sqrt() + self.eps)
        return rows - scale.to(rows).reshape(-1, *[1] * (rows.dim() - 1)) * gradients

    def _accepted(self, number: int, indices: torch.Tensor) -> None:
        self._sums[number][indices.cpu()] = self._next

    def state_dict(self) -> dict[str, Any]:
        """The accumulators."""
        return {"sums": [one.clone() for one in self._sums]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads what `state_dict` returned. Raises ValueError if it belongs to other tables."""
        sums = state["sums"]
        if [len(one) for one in sums] != [len(one) for one in self._sums]:
            raise ValueError("the state belongs to tables with other numbers of rows")
        self._sums = [one.clone() for one in sums]
