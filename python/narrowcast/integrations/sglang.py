"""Storage for SGLang's hierarchical cache: files of encoded pages.

    python -m sglang.launch_server --model MODEL --enable-hierarchical-cache \\
      --hicache-storage-backend dynamic --hicache-storage-backend-extra-config '{
        "backend_name": "narrowcast", "module_path": "narrowcast.integrations.sglang",
        "class_name": "EncodedHiCacheFile", "file_storage_path": "/fast/disk"}'
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile

from .._torch.encoded import supported_codec
from .._torch.values import plain
from ..codec import decode, encode_batch
from ..errors import NarrowcastError

__all__ = ["EncodedHiCacheFile"]

_log = logging.getLogger(__name__)
_READERS = 4


def __dir__() -> list[str]:
    return sorted(__all__)


class EncodedHiCacheFile(HiCacheFile):  # type: ignore[misc]
    """SGLang's `HiCacheFile`, with pages that are encoded.

    In the extra config, besides the options of `HiCacheFile`:

    codec: by default "window".
    encoding_threads: for encoding pages; by default all CPUs.

    The limits of `HiCacheFile` on disk space apply to encoded pages. A page whose file is damaged is a miss, and is
    written again.
    """

    def __init__(self, storage_config: Any, arguments: Any = None) -> None:
        extra = storage_config.extra_config or {}
        # Not only when the first page is written.
        self._codec = supported_codec(str(extra.get("codec", "window")))
        self._threads = int(extra.get("encoding_threads", 0))
        # Files of HiCacheFile in the same folder have other names.
        model = f"{storage_config.model_name or ''}-narrowcast"
        super().__init__(dataclasses.replace(storage_config, model_name=model))
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="narrowcast-hicache")

    def _path(self, key: str) -> Path:
        return Path(self.file_path) / f"{self._get_suffixed_key(key)}.bin"

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        """Decodes a page into `target_location`. None if there is no such page."""
        path, name = self._path(key), self._get_suffixed_key(key)
        try:
            frame = path.read_bytes()
        except FileNotFoundError:
            if self.metadata_cache is not None:
                self.metadata_cache.remove(name)
            return None
        try:
            decode(frame, out=target_location.view(-1).view(torch.uint8))
        except (NarrowcastError, ValueError, TypeError) as error:
            _log.warning("%s is not a page of this cache, or damaged: %s. It is removed", path, error)
            self._forget(path, name)
            return None
        self._evictor.touch(name, str(path))
        if self.metadata_cache is not None:
            self.metadata_cache.add(name)
        return target_location

    def _forget(self, path: Path, name: str) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
        self._evictor.abort(name)  # drops the file from the total
        if self.metadata_cache is not None:
            self.metadata_cache.remove(name)

    def batch_get(
        self, keys: Sequence[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Decodes pages. None for each one that does not exist."""
        return list(self._readers.map(self.get, keys, target_locations))

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Encodes a page into a file, unless there is one."""
        return self.batch_set([key], [value])

    def batch_set(
        self, keys: Sequence[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Encodes pages into files. False if one of them could not be written."""
        new = {}
        for key, value in zip(keys, values, strict=True):
            if self.exists(key):
                self._evictor.touch(self._get_suffixed_key(key), str(self._path(key)))
            else:
                new[key] = _with_values(value)
        frames = encode_batch(list(new.values()), codec=self._codec, threads=self._threads)
        # HiCacheFile writes the bytes of a frame as it would write those of a page.
        pairs = zip(new, frames, strict=True)
        return all(super(EncodedHiCacheFile, self).set(key, torch.from_numpy(frame.view())) for key, frame in pairs)

    def close(self) -> None:
        """Ends the threads that read."""
        self._readers.shutdown()


def _with_values(page: torch.Tensor) -> torch.Tensor:
    """The page as an array that has a codec; as bytes if its type has none."""
    page = plain(page).contiguous()
    kinds = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2)
    return page if page.dtype in kinds else page.reshape(-1).view(torch.uint8)
