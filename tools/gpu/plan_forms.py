"""The plans that plans.py runs: those of sample_plans.py, plans of files, and scheduled forms of both.

A plan is named by its name in sample_plans.PLANS, or by the path of a file in any format. "merged NAME" is that plan
with as few groups as the scheduler finds, and "replicated NAME" the same if it may divide the plan into instances.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path
from typing import Any

from sample_plans import PLANS

#: Instances that the scheduler may make, by form.
FORMS = {"merged": 1, "replicated": 2}
#: Of the larger buffer of the calls for which plans are scheduled.
SCHEDULED_BYTES = 16 << 20


def known(name: str) -> str:
    """The name, for argparse."""
    base = form_and_base(name)[1]
    if base not in PLANS and not Path(base).is_file():
        raise argparse.ArgumentTypeError(f"{base} is neither a file nor one of {', '.join(PLANS)}")
    return name


@cache
def text_of(name: str, ranks: int, codec: str) -> str:
    """A plan in JSON, all of whose messages have the codec."""
    from narrowcast._plan import loading

    form, base = form_and_base(name)
    if form:
        plan = loading.read(text_of(base, ranks, codec).encode(), base)
        return plan.schedule(SCHEDULED_BYTES, max_instances=FORMS[form]).plan.json()
    if base in PLANS:
        return PLANS[base][1](ranks, codec)
    document = json.loads(loading.load(base, ranks=ranks).json())
    steps = (step for rank in document["ranks"] for group in rank["groups"] for step in group["steps"])
    for operand in (one for step in steps for key in ("from", "to") for one in step.get(key, [])):
        if "channel" in operand and "buffer" not in operand:
            operand["codec"] = codec
    return json.dumps(document)


def document_of(name: str, ranks: int, codec: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text_of(name, ranks, codec))
    return document


def measured_op(name: str, ranks: int, codec: str) -> str:
    """The reduction of measured calls. In calls in place, averages of equal values stay what they are."""
    return "avg" if document_of(name, ranks, codec).get("in_place") == "yes" else "sum"


def form_and_base(name: str) -> tuple[str, str]:
    form, _, base = name.partition(" ")
    return (form, base) if form in FORMS else ("", name)
