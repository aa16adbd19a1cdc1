"""The parts of a module that are fetched together, and what stands for their parameters otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from .encoded import EncodedTensors

# Modules that use the parameters of their children without calling them.
_WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_ALIASES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
_CONVERSIONS = (torch.ops.aten._to_copy.default, torch.ops.aten.empty_like.default)


class Released(torch.Tensor):  # type: ignore[misc]
    """Stands for a parameter that is not in memory: has its shape, type and device, and raises when it is used."""

    parameter_name: str

    @staticmethod
    def __new__(cls, like: torch.Tensor, name: str, device: torch.device) -> Released:
        made: Released = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=like.dtype, device=device
        )
        made.parameter_name = name
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        released = next((one for one in args if isinstance(one, cls)), None)
        if function in _ALIASES and released is not None:
            return cls(released, released.parameter_name, released.device)
        name = "a parameter" if released is None else repr(released.parameter_name)
        if function in _CONVERSIONS:
            raise TypeError(
                f"{name} is offloaded: call restore() before the module is converted or moved; "
                "if it is used in a forward, pass the module with this forward in units="
            )
        raise RuntimeError(
            f"{name} is offloaded, and {function} uses it outside of the forward of its unit: "
            "pass the module whose forward uses it in units="
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.__reduce_ex__(None)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"{self.parameter_name!r} is offloaded: call restore() before the module is copied or pickled")

    def __repr__(self, **_: Any) -> str:
        return f"Released({self.parameter_name!r}, shape={tuple(self.shape)}, dtype={self.dtype})"


@dataclass(frozen=True)
class Slot:
    """Where a parameter is used: an attribute of a module."""

    module: nn.Module
    name: str

    def write(self, parameter: nn.Parameter) -> None:
        # Not to _parameters: recurrent modules keep a list of their weights up to date.
        setattr(self.module, self.name, parameter)


@dataclass(frozen=True)
class Stored:
    """A parameter of a unit: where it is used, and its encoded values."""

    slots: list[Slot]
    encoded: EncodedTensors
    name: str  # in `encoded`
    placeholder: nn.Parameter
    requires_grad: bool


@dataclass(eq=False)
class Unit:
    """A module with parameters that are fetched before its forward and released after it."""

    name: str
    module: nn.Module
    stored: list[Stored] = field(default_factory=list)
    active: int = 0  # calls of forward that have begun and not ended

    def read(self, device: torch.device) -> list[torch.Tensor]:
        """Decodes the parameters, in the order of `stored`."""
        found: dict[int, torch.Tensor] = {}
        for encoded in {id(one.encoded): one.encoded for one in self.stored}.values():
            numbers = [i for i, one in enumerate(self.stored) if one.encoded is encoded]
            tensors = encoded.read([self.stored[i].name for i in numbers], device=device)
            found.update(zip(numbers, tensors, strict=True))
        return [found[i] for i in range(len(self.stored))]

    def install(self, tensors: list[torch.Tensor]) -> None:
        """Puts tensors in place of the placeholders."""
        for stored, tensor in zip(self.stored, tensors, strict=True):
            parameter = nn.Parameter(tensor, requires_grad=False)
            for slot in stored.slots:
                slot.write(parameter)

    def release(self) -> None:
        for stored in self.stored:
            for slot in stored.slots:
                slot.write(stored.placeholder)


def unit_modules(root: nn.Module, chosen: Iterable[nn.Module] | None) -> Iterator[tuple[str, nn.Module, bool]]:
    """Name and module of each unit, once, and whether it has the parameters of its children too.

    Raises ValueError if a chosen module is not part of the root, or inside of another chosen one.
    """
    names = {module: name for name, module in root.named_modules()}
    if chosen is None:
        yield from _default_units(root, "", set())
        return
    owners: dict[nn.Module, str] = {}
    for module in dict.fromkeys(chosen):
        if module not in names:
            raise ValueError(f"units contains a {type(module).__name__} that is not part of the module")
        for inner in module.modules():
            if inner in owners:
                raise ValueError(f"units contains {names[module]!r} and {owners[inner]!r}, which share modules")
        owners.update(dict.fromkeys(module.modules(), names[module]))
        yield names[module], module, True


def _default_units(module: nn.Module, name: str, seen: set[nn.Module]) -> Iterator[tuple[str, nn.Module, bool]]:
    if module in seen:
        return
    seen.add(module)
    if isinstance(module, _WHOLE):
        seen.update(module.modules())
        yield name, module, True
        return
    if module._parameters:
        yield name, module, False
    for child_name, child in module.named_children():
        yield from _default_units(child, f"{name}.{child_name}" if name else child_name, seen)


def parameters_of(module: nn.Module, name: str, recurse: bool) -> Iterator[tuple[str, Slot, nn.Parameter]]:
    """Every use of a parameter in a unit, tied ones repeatedly: its name in the root, its place, and itself."""
    for inner_name, inner in module.named_modules() if recurse else [("", module)]:
        for own, parameter in inner._parameters.items():
            if parameter is not None:
                yield ".".join(part for part in (name, inner_name, own) if part), Slot(inner, own), parameter


def surround_forward(
    module: nn.Module, enter: Callable[..., None], leave: Callable[..., None]
) -> list[Callable[[], None]]:
    """Has functions called before forward and, whether or not it fails, after it. Returns what undoes this."""
    enter, leave = torch.compiler.disable(enter), torch.compiler.disable(leave)
    if not isinstance(module, nn.TransformerEncoderLayer):
        return [
            module.register_forward_pre_hook(enter, prepend=True).remove,
            module.register_forward_hook(leave, always_call=True).remove,
        ]
    # With hooks, this one takes a slower path, which may round otherwise.
    forward, own = module.forward, module.__dict__.get("forward")

    @functools.wraps(forward)
    def surrounded(*args: Any, **kwargs: Any) -> Any:
        try:
            enter()
            return forward(*args, **kwargs)
        finally:
            leave()

    def undo() -> None:
        if own is None:
            del module.forward
        else:
            module.forward = own

    module.forward = surrounded
    return [undo]
