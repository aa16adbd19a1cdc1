"""Lines `name: text` of docstrings as a Markdown list.

The docstrings describe parameters in lines that start with their names. Markdown would join these lines to a paragraph.
"""

from __future__ import annotations

import re

_PARAMETERS = re.compile(r"([a-z_]\w*(?:, [a-z_]\w*)*): (.*)")


def with_lists(text: str) -> str:
    result: list[str] = []
    in_list = in_code = False
    for line in text.splitlines():
        in_code = line.startswith("    ") and not in_list
        found = None if in_code else _PARAMETERS.fullmatch(line)
        if found:
            if not in_list:
                result.append("")
            result.append(f"- `{found[1]}`: {found[2]}")
        elif in_list and line.startswith("  "):
            result.append(f"  {line.strip()}")
        else:
            if in_list and line:
                result.append("")
            result.append(line)
        in_list = bool(found) or (in_list and line.startswith("  "))
    return "\n".join(result)
