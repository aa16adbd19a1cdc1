"""The forms in which torch's process groups accept a call: with options, or with their fields as arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

_FIELDS = {"op": "reduceOp", "root": "rootRank", "timeout": "timeout"}


def overloaded(
    options: type, data: Sequence[str], fields: Sequence[str], *, nested: Sequence[str] = ()
) -> Callable[[Any], Any]:
    """Decorates `method(self, *data, opts)`, where each of the data is a list of tensors.

    options: the class of `opts`.
    data, fields: names of the arguments, and of the options that can follow them in place of `opts`. The names of a
        form with single tensors, such as `tensor` and `input`, are accepted too.
    nested: the data that are a list of lists. In the form with single tensors each is one list.
    """
    singular = dict(zip(["output", "input"], data, strict=False)) if len(data) == 2 else {}
    singular |= {name.removesuffix("s"): name for name in data}

    def decorate(method: Any) -> Any:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) == len(data) + 1 and isinstance(args[-1], options) and isinstance(args[0], list):
                return method(self, *args)
            given = dict(zip([*data, "opts"], args, strict=False))
            rest = args[len(data) :]
            if rest and rest[0] is not None and not isinstance(rest[0], options):
                del given["opts"]
                given |= zip(fields, rest, strict=False)
            for name, value in kwargs.items():
                given[singular.get(name, name)] = value
            unknown = given.keys() - {*data, "opts", *fields}
            if unknown or not given.keys() >= {*data} or len(args) + len(kwargs) > len(given):
                forms = ", ".join(data), ", ".join([*data, *fields])
                raise TypeError(f"{method.__name__}() takes ({forms[0]}, opts) or ({forms[1]})")
            if any(isinstance(given[name], torch.Tensor) for name in data):
                for name in data:
                    if name in nested or isinstance(given[name], torch.Tensor):
                        given[name] = [given[name]]
            opts = given.get("opts") or options()
            for name in fields:
                if given.get(name) is not None:
                    setattr(opts, _FIELDS[name], given[name])
            return method(self, *(given[name] for name in data), opts)

        return call

    return decorate
