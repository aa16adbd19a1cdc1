"""Public modules expose documented names only."""

from __future__ import annotations

import importlib
import importlib.resources
import inspect
from pathlib import Path
from types import ModuleType

import narrowcast
import pytest

PUBLIC = (
    "codec",
    "comm",
    "cuda",
    "cuda_batch",
    "errors",
    "files",
    "local",
    "plan",
    "plots",
    "ratios",
    "safetensors",
    "store",
    "types",
)
NEED_TORCH = ("torch", "torch_backend")


@pytest.mark.parametrize("name", [*PUBLIC, *NEED_TORCH])
def test_a_public_module_lists_its_names_and_no_imported_ones(name):
    if name in NEED_TORCH:
        pytest.importorskip("torch", reason="torch is not installed")
    module = importlib.import_module(f"narrowcast.{name}")
    assert dir(module) == sorted(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        assert not public.startswith("_")
        assert not isinstance(value, ModuleType)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__.startswith("narrowcast.")
            assert inspect.getdoc(value), f"{name}.{public} has no docstring"


def test_the_package_exports_the_names_it_lists():
    for public in narrowcast.__all__:
        assert hasattr(narrowcast, public)


def test_modules_that_are_not_public_have_an_underscore():
    names = {path.name for path in importlib.resources.files(narrowcast).iterdir()}
    flat = {name.removesuffix(".py") for name in names if name.endswith(".py")}
    assert flat == {*PUBLIC, *NEED_TORCH, "__init__", "__main__"}


def test_the_installed_package_has_every_module() -> None:
    source = Path(__file__).parents[2] / "python" / "narrowcast"
    installed = Path(narrowcast.__file__).parent
    modules = [path.relative_to(source) for path in source.rglob("*.py")]
    assert [str(path) for path in modules if not (installed / path).is_file()] == []
