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
    pinned copies of the weights are freed. Weights that several groups share are encoded once, and stay loaded while
    one of these groups is. Changes that forward makes to weights and buffers are lost when they are released. Forward
    raises TypeError if weights have been converted to another type since they were encoded.

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
    weights: dict[torch.Tensor, _Weight] = {}
    return EncodedGroups([_Group(group, weights, codec, threads, releases) for _, group in reversed(groups.values())])


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

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("encoded groups cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"EncodedGroups({len(self)} groups, {self.wire_bytes} of {self.raw_bytes} bytes)"


class _Weight:
    """A weight of one or several groups, such as a tied one, and its encoded values.

    It is in memory while any of these groups is loaded.
    """

    def __init__(self, tensor: torch.Tensor, encoded: EncodedTensors, name: str, device: Any) -> None:
        self.tensor, self.encoded, self.name = tensor, encoded, name
        self.loaded: set[_Group] = set()  # groups
        self.stream: Any = None  # on which it was decoded
        self._placeholder = _placeholder(tensor.data, device)
        tensor.data = self._placeholder

    def check_type(self) -> None:
        if self.tensor.dtype != self._placeholder.dtype:
            raise TypeError(
                f"a weight that was encoded as {self._placeholder.dtype} was converted to {self.tensor.dtype}: "
                "convert the module before encode_groups"
            )

    def load(self, group: _Group, values: torch.Tensor, stream: Any) -> None:
        self.tensor.data, self.stream = values, stream
        self.loaded.add(group)

    def release(self, group: _Group) -> None:
        self.loaded.discard(group)
        if not self.loaded:
            self.tensor.data = self._placeholder


class _Group:
    def __init__(
        self, group: Any, weights: dict[torch.Tensor, _Weight], codec: str, threads: int, releases: Releases
    ) -> None:
        """weights: of the groups before, which gets those of this group."""
        self._group, self._releases = group, releases
        self._device = supported_device(group.onload_device)
        tensors = _tensors(group)
        new = {str(number): one for number, one in enumerate(tensors) if one not in weights}
        self.encoded = EncodedTensors(
            {name: one.data for name, one in new.items()}, device=self._device, codec=codec, threads=threads
        )
        for name, one in new.items():
            weights[one] = _Weight(one, self.encoded, name, group.offload_device)
        self._weights = [weights[one] for one in tensors]
        group.onload_, group.offload_ = _Bound(self.onload), _Bound(self.offload)
        # Pinned copies, which the encoded weights replace.
        group.cpu_param_dict = {}

    def onload(self) -> None:
        stream = self._group.stream
        missing = []
        for one in self._weights:
            one.check_type()
            if one.loaded and one.tensor.device == self._device:
                # By another group, which may have a stream of its own.
                if one.stream is not None:
                    torch.cuda.current_stream(self._device).wait_stream(one.stream)
                one.loaded.add(self)
            else:
                missing.append(one)
        tensors = self._read(missing) if stream is None else self._read_on(stream, missing)
        for one, values in zip(missing, tensors, strict=True):
            one.load(self, values, stream)

    def offload(self) -> None:
        for one in self._weights:
            one.release(self)
        if self._group.stream is not None:
            self._releases.add(self._device)

    def _read(self, weights: list[_Weight]) -> list[torch.Tensor]:
        """Decodes weights, in their order."""
        found: dict[_Weight, torch.Tensor] = {}
        for encoded in {id(one.encoded): one.encoded for one in weights}.values():
            some = [one for one in weights if one.encoded is encoded]
            found.update(zip(some, encoded.read([one.name for one in some], device=self._device), strict=True))
        return [found[one] for one in weights]

    def _read_on(self, stream: Any, weights: list[_Weight]) -> list[torch.Tensor]:
        using = torch.cuda.current_stream(self._device)
        # diffusers relies on it: when a group fetches the next one, its own weights, fetched on this stream, are used.
        stream.synchronize()
        self._releases.wait()
        with torch.cuda.stream(stream):
            tensors = self._read(weights)
        for one in tensors:
            # Released memory is not used again before the model is done with it.
            one.record_stream(using)
        if self._group.onload_self:
            # Not fetched ahead, as in the first forward: diffusers copies without waiting for the stream afterwards.
            using.wait_stream(stream)
        return tensors


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
