"""The griffe extension of mkdocs.yml: docstrings with lists (docstrings.py)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
docstrings: Any = importlib.import_module("docstrings")


def on_object(_self: Any, *, obj: Any, **_: Any) -> None:
    if obj.docstring:
        obj.docstring.value = docstrings.with_lists(obj.docstring.value)


Lists: Any = type("Lists", (importlib.import_module("griffe").Extension,), {"on_object": on_object})
