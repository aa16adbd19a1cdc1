"""Group offloading of diffusers, with weights that are encoded in host memory.

```python
apply_group_offloading(transformer, torch.device("cuda"), offload_type="leaf_level", use_stream=True)
groups = encode_groups(transformer)
```
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from diffusers.hooks.group_offloading import GroupOffloadingHook
from torch import nn

from .._torch.encoded import EncodedTensors, supported_device
from .._torch.releases import Releases

__all__ = ["EncodedGroups", "encode_groups"]


def __dir__() -> list[str]:
    return sorted(__all__)


def encode_groups(module: nn.Module, *, codec: str = "window", threads: int = 0) -> EncodedGroups:
    """Encodes the offloaded weights of a module to which `apply_group_offloading` was applied. Changes it in place.

    codec: one of `narrowcast.codecs()`.
    threads: for encoding and decoding on the CPU; 0: the CPUs that this process may use.

    diffusers decides as before when a group is loaded, ahead or not, and released; loading decodes on its stream. Its
    pinned copies of the weights are freed.

    Raises ValueError if the module has no offloaded groups, or they are on a disk, loaded, or encoded already.
    """
    found = [(name, hook.group) for name, hook in _hooks(module)]
    groups = {id(group): (name, group) for name, group in reversed(found)}
    if not groups:
        raise ValueError("the module has no offloaded groups: call apply_group_offloading first")
    for name, group in groups.values():
        if isinstance(group.__dict__.get("onload_"), _Bound):
            raise ValueError(f"the group of {name!r} is encoded already")
        if group.offload_to_disk_path is not None:
            raise ValueError(f"the group of {name!r} is offloaded to a disk")
        if any(one.device.type != group.offload_device.type for one in _tensors(group)):
            raise ValueError(f"the group of {name!r} is loaded: call encode_groups before or after a forward")
    releases = Releases()
    return EncodedGroups([_Group(group, codec, threads, releases) for _, group in reversed(groups.values())])


def _hooks(module: nn.Module) -> Iterator[tuple[str, GroupOffloadingHook]]:
    for name, inner in module.named_modules():
        registry = getattr(inner, "_diffusers_hook", None)
        for hook in registry.hooks.values() if registry is not None else ():
            if isinstance(hook, GroupOffloadingHook):
                yield name, hook


def _tensors(group: Any) -> list[torch.Tensor]:
    """The weights of a group, without duplicates, such as tied ones."""
    own = [tensor for module in group.modules for tensor in (*module.parameters(), *module.buffers())]
    return list({id(one): one for one in (*own, *group.parameters, *group.buffers)}.values())


class EncodedGroups:
    """The encoded groups of a module."""

    def __init__(self, groups: list[_Group]) -> None:
        self._groups = groups

    @property
    def raw_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(one.encoded.raw_bytes for one in self._groups)

    @property
    def wire_bytes(self) -> int:
        """Bytes that they take in host memory."""
        return sum(one.encoded.wire_bytes for one in self._groups)

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes (smaller is better); None if there are no weights."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None

    def check(self) -> None:
        """Waits for the GPU and raises CorruptError if encoded weights no longer decode."""
        for one in self._groups:
            one.encoded.check()

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return f"EncodedGroups({len(self)} groups, {self.wire_bytes} of {self.raw_bytes} bytes)"


class _Group:
    def __init__(self, group: Any, codec: str, threads: int, releases: Releases) -> None:
        self._group, self._releases = group, releases
        self._device = supported_device(group.onload_device)
        self._tensors = _tensors(group)
        self._names = [str(number) for number in range(len(self._tensors))]
        self.encoded = EncodedTensors(
            dict(zip(self._names, (one.data for one in self._tensors), strict=True)),
            device=self._device,
            codec=codec,
            threads=threads,
        )
        self._placeholders = [_placeholder(one.data, group.offload_device) for one in self._tensors]
        group.onload_, group.offload_ = _Bound(self.onload), _Bound(self.offload)
        # Pinned copies, which the encoded weights replace.
        group.cpu_param_dict = {}
        self._install(self._placeholders)

    def onload(self) -> None:
        stream = self._group.stream
        self._install(self.encoded.read(self._names) if stream is None else self._read_on(stream))

    def offload(self) -> None:
        self._install(self._placeholders)
        if self._group.stream is not None:
            self._releases.add(self._device)

    def _read_on(self, stream: Any) -> list[torch.Tensor]:
        using = torch.cuda.current_stream(self._device)
        # diffusers relies on it: when a group fetches the next one, its own weights, fetched on this stream, are used.
        stream.synchronize()
        self._releases.wait()
        with torch.cuda.stream(stream):
            tensors = self.encoded.read(self._names)
        for one in tensors:
            # Released memory is not used again before the model is done with it.
            one.record_stream(using)
        if self._group.onload_self:
            # Not fetched ahead, as in the first forward: diffusers copies without waiting for the stream afterwards.
            using.wait_stream(stream)
        return tensors

    def _install(self, tensors: list[torch.Tensor]) -> None:
        for old, new in zip(self._tensors, tensors, strict=True):
            old.data = new


class _Bound:
    """A method of an encoded group, in place of one of diffusers, which compilers leave alone."""

    def __init__(self, function: Any) -> None:
        self._function = torch.compiler.disable(function)

    def __call__(self) -> None:
        self._function()


def _placeholder(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    """A tensor of the same shape that takes no memory. Its values are NaN, so that a use by mistake is seen."""
    one = torch.zeros((), dtype=tensor.dtype, device=device)
    with contextlib.suppress(RuntimeError):  # integers
        one = torch.full((), torch.nan, dtype=tensor.dtype, device=device)
    return one.expand(tensor.shape)
