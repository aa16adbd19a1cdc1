"""`codec list`: the codecs, their parameters and types, and presets."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from ..._native.codecs import Codec, CodecParameter, codecs, presets
from .._common import print_json
from .._tables import Column, Table


def list_codecs(
    json: Annotated[bool, typer.Option("--json", help="Print JSON, not tables.")] = False,
) -> None:
    """List the codecs, with their parameters and defaults, and the presets.

    Includes the codecs of the libraries in NARROWCAST_USER_CODECS.
    """
    if json:
        print_json({"codecs": [dataclasses.asdict(one) for one in codecs()], "presets": presets()})
        return
    table = Table(*(Column(name, folds=True) for name in ("codec", "values are", "parameters", "ratio of types")))
    for one in codecs():
        table.add_row(one.name, _kind(one), ", ".join(map(_parameter, one.parameters)), _ratios(one))
    table.print()
    table = Table("preset", Column("stands for", folds=True), title="Presets are named after other systems' recipes:")
    for name, codec in presets().items():
        table.add_row(name, codec)
    table.print()


def _kind(codec: Codec) -> str:
    return ("kept" if codec.exact else "changed") + (" (registered)" if codec.registered else "")


def _parameter(parameter: CodecParameter) -> str:
    default = parameter.text(parameter.default)
    if parameter.choices:
        return f"{parameter.name}={default} ({'|'.join(parameter.choices)})"
    return f"{parameter.name}={default} ({parameter.text(parameter.least)} to {parameter.text(parameter.most)})"


def _ratios(codec: Codec) -> str:
    if codec.name == "raw":
        return "all types: 1"
    return ", ".join(f"{one.dtype} {one.prior_ratio:g}" for one in codec.types)
