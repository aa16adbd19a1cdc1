"""tools/check_includes.py finds headers of the standard library that are used and not included."""

import pytest
from checked_trees import ROOT, check, write

TOOL = "check_includes.py"

GOOD = {
    "cmake/precompiled.cmake": "set(precompiled_headers <memory>\n  <vector>)\n",
    "include/narrowcast/types.h": "#include <string>\n",
    "src/plan/plan.h": "#include <vector>\n",
    "src/plan/plan.cc": '#include "narrowcast/types.h"\n#include "plan.h"\nstd::vector<std::string> names;\n',
    "src/plan/text.cc": '// std::optional\nconst char* text = "std::optional";\n',
    "tests/support/plans.h": '#include "plan/plan.h"\n',
    "tests/plan/plan_test.cc": '#include "support/plans.h"\nstd::vector<int> values;\n',
}


def test_sources_that_include_what_they_use_are_accepted(tmp_path):
    write(tmp_path, GOOD)
    done = check(TOOL, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "includes: complete\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("src/a.cc", "#include <vector>\n\nstd::string text;\n", "src/a.cc:3: string needs <string>"),
        ("src/a.h", "std::unique_ptr<int> value;\n", "src/a.h:1: unique_ptr needs <memory>"),
        ("src/a.cu", 'printf("%" PRIu64, std::sqrt(2));\n', "src/a.cu:1: PRIu64 needs <cinttypes>"),
        ("tests/a.cc", "std::mutex a;\nstd::lock_guard b(a);\n", "tests/a.cc:1: mutex needs <mutex>"),
        ("tests/a.inc", '#include "plan.h"\nstd::vector<int> a;\n', "tests/a.inc:2: vector needs <vector>"),
    ],
)
def test_a_header_that_is_not_included_is_reported_where_it_is_used(tmp_path, name, text, message):
    write(tmp_path, GOOD | {name: text})
    done = check(TOOL, tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == message


def test_a_precompiled_header_without_names_is_reported(tmp_path):
    write(tmp_path, GOOD | {"cmake/precompiled.cmake": "set(precompiled_headers <memory> <regex>)\n"})
    done = check(TOOL, tmp_path)
    assert done.returncode == 1
    assert done.stderr == "cmake/precompiled.cmake: <regex> has no row in tools/check_includes.py\n"


def test_the_repository_is_accepted():
    done = check(TOOL, ROOT)
    assert done.returncode == 0, done.stderr
