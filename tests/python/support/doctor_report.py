"""The problems in a report of `narrowcast doctor`."""

from __future__ import annotations


def problem(report, *words):
    """The only problem that contains these words."""
    (found,) = [one for one in report["problems"] if all(word in one["what"] for word in words)]
    assert found["remedy"].endswith(".")
    return found
