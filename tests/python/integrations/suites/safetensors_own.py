"""The tests of safetensors, from its source distribution, with functions of Narrowcast in place of its own.

Those that compare the bytes of files are expected to fail, because the files are encoded. These run a second time, with
functions that decode what they have saved.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import TestCase, TestLoader

import narrowcast.files
import narrowcast.safetensors
import pytest
import safetensors.numpy
import safetensors.torch
from expected_failures import EXPECTED_FAILURES

# `make test-integrations` puts them there.
TESTS = Path(sys.prefix) / "suites" / f"safetensors-{safetensors.__version__}" / "bindings" / "python" / "tests"
OTHER_FRAMEWORKS = ("flax", "mlx", "paddle", "tf")
LISTED = EXPECTED_FAILURES["safetensors_own"]

REPLACED: list[tuple[Any, Any, tuple[str, ...]]] = [
    (safetensors, narrowcast.safetensors, ("safe_open", "_safe_open_handle")),
    (safetensors.torch, narrowcast.safetensors, ("load", "load_file", "load_model", "save", "save_file", "save_model")),
    (safetensors.numpy, narrowcast.files, ("load", "load_file", "save", "save_file")),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder in which the tests expect to run."""
    (tmp_path / "tests" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


def decoded(content: bytes) -> bytes:
    result = io.BytesIO()
    narrowcast.files.decode_file(io.BytesIO(content), result)
    return result.getvalue()


def and_decode(save: Callable[..., Any]) -> Callable[..., Any]:
    """A function that saves, and decodes what it has saved."""

    def saving(what: Any, *arguments: Any, **options: Any) -> Any:
        result = save(what, *arguments, **options)
        if isinstance(result, bytes):
            return decoded(result)
        path = Path(arguments[0])
        path.write_bytes(decoded(path.read_bytes()))
        return result

    return saving


def in_file(path: Path, wrap_save: Callable[..., Any] | None = None) -> dict[str, Any]:
    """The classes and functions of a file that contain tests, by name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for place, source, names in REPLACED:
            for name in names:
                function = getattr(source, name)
                patch.setattr(place, name, wrap_save(function) if wrap_save and name.startswith("save") else function)
        spec.loader.exec_module(module)
    return {
        name + path.stem.removeprefix("test"): one
        for name, one in vars(module).items()
        if (inspect.isclass(one) and issubclass(one, TestCase)) or (inspect.isfunction(one) and name[:5] == "test_")
    }


def all_of(path: Path) -> dict[str, Any]:
    """The tests of a file; those that are expected to fail again, with functions that decode."""
    encoded = in_file(path)
    again = in_file(path, and_decode)
    for name, one in list(again.items()):
        if inspect.isclass(one):
            for test in TestLoader().getTestCaseNames(one):
                if f"{name}::{test}" not in LISTED:
                    delattr(one, test)
        elif name not in LISTED:
            del again[name]
    return encoded | {f"{name}_decoded": one for name, one in again.items()}


if not TESTS.is_dir():
    pytest.skip(f"the tests of safetensors are not in {TESTS}", allow_module_level=True)
for file in sorted(TESTS.glob("test_*.py")):
    if not any(name in file.stem for name in OTHER_FRAMEWORKS):
        globals().update(all_of(file))
