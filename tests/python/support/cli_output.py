"""What commands print."""

from __future__ import annotations


def assert_one_line(result, status, *words):
    """Asserts that a command failed with a message of one line that contains the words."""
    assert result.returncode == status, result
    assert result.stdout == ""
    assert result.stderr.startswith("narrowcast: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
