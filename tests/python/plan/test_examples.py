"""The examples are short, and the guide shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from narrowcast._plan.text import listing
from narrowcast.plan import load

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "plans").glob("*.py"))
GUIDE = (ROOT / "docs" / "guide" / "plans.md").read_text()

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def test_there_are_examples():
    assert {"ring", "all_pairs", "two_shot", "hierarchical", "tree", "all_to_all"} <= {path.stem for path in EXAMPLES}


@each_example
def test_examples_have_less_than_30_lines(path):
    assert len(path.read_text().splitlines()) < 30


@each_example
def test_the_guide_shows_the_whole_example(path):
    assert f"```python\n{path.read_text()}```\n" in GUIDE


def test_the_guide_shows_the_steps_of_the_two_shot_example():
    (shown,) = re.findall(r"^```text\n(     0.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    steps = list(listing(load(ROOT / "examples" / "plans" / "two_shot.py").model, [0]))[2:]
    assert shown.split() == " ".join(steps).split()


def test_whole_programs_of_the_guide_are_examples():
    shown = re.findall(r"^```python\n(\"\"\".*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert sorted(shown) == sorted(path.read_text() for path in EXAMPLES)
