"""The scripts in examples/integrations run."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from narrowcast import cuda

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "integrations").glob("*.py"))
SECONDS = 240
NEED_A_GPU = {"diffusers_groups"}
NEED_A_MODEL = {"vllm_kv_offload", "vllm_weight_offload"}


def packages(path: Path) -> set[str]:
    """The packages that a script imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_script_runs(path, tmp_path):
    if path.stem in NEED_A_MODEL:
        pytest.skip("needs a GPU and a model")
    if path.stem in NEED_A_GPU and not cuda.device_count():
        pytest.skip("needs a GPU")
    missing = sorted(name for name in packages(path) if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    done = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_guide_shows_the_script(path):
    guides = "".join(page.read_text() for page in (ROOT / "docs" / "guide").glob("*.md"))
    assert f"examples/integrations/{path.name}" in guides
