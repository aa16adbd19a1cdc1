"""A feature of DGL's GraphBolt, whose rows are encoded in host memory.

```python
feature = StoreFeature(narrowcast.store.open("features.ncs"))
features = graphbolt.BasicFeatureStore({("node", None, "feat"): feature})
```
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from dgl.graphbolt import Feature

from .._torch.rows import fetch, gather
from .._torch.values import plain
from ..store import Store

__all__ = ["StoreFeature"]


def __dir__() -> list[str]:
    return sorted(__all__)


class _Read:
    """A read that runs on a thread."""

    def __init__(self, future: Future[torch.Tensor]) -> None:
        self._future = future

    def wait(self) -> torch.Tensor:
        return self._future.result()


class _Enqueued:
    """A read that a stream runs."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._rows, self._done = rows, torch.cuda.Event()
        self._done.record(torch.cuda.current_stream(rows.device))

    def wait(self) -> torch.Tensor:
        stream = torch.cuda.current_stream(self._rows.device)
        stream.wait_event(self._done)
        # The memory is of the stream that reads, and is not used again before this one is done with it.
        self._rows.record_stream(stream)
        return self._rows


class StoreFeature(Feature):  # type: ignore[misc]
    """The rows of a `narrowcast.store.Store` as a feature. The caller closes the store.

    metadata: what `metadata()` returns; None: the metadata of the store.

    Rows are returned on the device of the ids.
    """

    def __init__(self, store: Store, metadata: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.store: Store = store
        self._metadata = metadata
        self._thread: ThreadPoolExecutor | None = None

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """The rows at `ids`; None: all rows, on the CPU. Raises IndexError."""
        return fetch(self.store, 0, len(self.store)) if ids is None else gather(self.store, ids)

    def read_async(self, ids: torch.Tensor) -> Iterator[Any]:
        """Yields an object whose `wait()` returns the rows at `ids`."""
        if ids.is_cuda:
            yield _Enqueued(gather(self.store, ids))
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="narrowcast-read")
        yield _Read(self._thread.submit(gather, self.store, ids))

    def read_async_num_stages(self, ids_device: torch.device) -> int:
        """How often `read_async` yields."""
        return 1

    def size(self) -> torch.Size:
        """The shape of a row."""
        return torch.Size(self.store.row_shape)

    def count(self) -> int:
        """The number of rows."""
        return len(self.store)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Changes the rows at `ids`; None: all rows.

        Raises ValueError if the shapes do not match, and what `Store.update` raises.
        """
        numbers = torch.arange(len(self.store)) if ids is None else ids
        if value.shape != (len(numbers), *self.store.row_shape):
            expected = (len(numbers), *self.store.row_shape)
            raise ValueError(f"value has shape {tuple(value.shape)}, but {expected} is needed")
        self.store.update(numbers.cpu(), plain(value).cpu().contiguous())

    def metadata(self) -> dict[str, Any]:
        """The metadata."""
        return self.store.metadata if self._metadata is None else self._metadata

    def __repr__(self) -> str:
        return f"StoreFeature({self.count()} rows of {tuple(self.size())}, {self.store.dtype}, {self.store.codec})"
