"""The plans that tools/gpu/plans.py runs on GPUs, in all forms."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msccl_documents import all_gather_ring
from narrowcast._plan import loading

sys.path.append(str(Path(__file__).parents[3] / "tools" / "gpu"))
plan_forms: Any = importlib.import_module("plan_forms")


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", plan_forms.PLANS)
def test_plans_and_their_scheduled_forms_are_proved(name: str, ranks: int) -> None:
    for form in ("", *(f"{form} " for form in plan_forms.FORMS)):
        assert loading.read(plan_forms.text_of(form + name, ranks, "window").encode(), name).verify().proved, form


@pytest.mark.parametrize(("name", "groups"), [("tree", (24, 6)), ("pairs", (28, 12))])
def test_plans_with_a_group_for_each_connection_are_scheduled_in_few(name: str, groups: tuple[int, int]) -> None:
    documents = [plan_forms.document_of(form + name, 4, "raw") for form in ("", "merged ")]
    before, after = (sum(len(rank["groups"]) for rank in document["ranks"]) for document in documents)
    assert before == groups[0]
    assert after <= groups[1]


def test_messages_of_plans_of_files_get_the_codec(tmp_path: Path) -> None:
    path = tmp_path / "ring.xml"
    path.write_text(all_gather_ring(2))
    document = json.loads(plan_forms.text_of(str(path), 2, "window"))
    steps = [step for rank in document["ranks"] for group in rank["groups"] for step in group["steps"]]
    messages = [one for step in steps for key in ("from", "to") for one in step[key] if "channel" in one]
    assert messages
    assert {one["codec"] for one in messages} == {"window"}
    assert plan_forms.measured_op(str(path), 2, "window") == "avg"  # in place
