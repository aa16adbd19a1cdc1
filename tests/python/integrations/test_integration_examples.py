"""The scripts in examples/integrations run."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
from example_scripts import FOLDER, run_script
from narrowcast import cuda

EXAMPLES = sorted(FOLDER.glob("*.py"))
NEED_A_GPU = {"diffusers_groups"}
NEED_A_MODEL = {"vllm_disaggregated", "vllm_kv_offload", "vllm_weight_offload"}  # test_vllm_engine.py runs them


def packages(path: Path) -> set[str]:
    """The packages that a script imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem not in NEED_A_MODEL], ids=lambda path: path.stem
)
def test_the_script_runs(path, tmp_path):
    if path.stem in NEED_A_GPU and not cuda.device_count():
        pytest.skip("needs a GPU")
    missing = sorted(name for name in packages(path) if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    done = run_script(tmp_path, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_guide_shows_the_script(path):
    guides = "".join(page.read_text() for page in (FOLDER.parents[1] / "docs" / "guide").glob("*.md"))
    assert f"examples/integrations/{path.name}" in guides
