"""Checks that sources in C++ and CUDA include the headers of the standard library that they use.

Builds can precompile these headers (cmake/precompiled.cmake). Then the compiler accepts a source that uses one of them
without including it, and it would fail to compile elsewhere. A source includes a header also through headers of this
repository, but not through other headers of the standard library.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Names in namespace std, and macros, that prove that a source uses a header.
NAMES = {
    "algorithm": "adjacent_find all_of any_of binary_search clamp copy_if copy_n count_if equal_range fill_n find_if "
    "find_if_not generate inplace_merge is_sorted lower_bound make_heap max_element merge min_element minmax_element "
    "mismatch next_permutation none_of nth_element partial_sort partition pop_heap push_heap remove_if replace_if "
    "reverse rotate search set_difference set_intersection set_union shuffle sort stable_sort transform unique "
    "upper_bound",
    "array": "array to_array",
    "atomic": "atomic atomic_bool atomic_flag atomic_ref atomic_thread_fence memory_order_acq_rel memory_order_acquire "
    "memory_order_relaxed memory_order_release memory_order_seq_cst",
    "chrono": "chrono",
    "cinttypes": "PRId32 PRId64 PRIu32 PRIu64 PRIx32 PRIx64",
    "cmath": "ceil exp fabs floor frexp isfinite isinf isnan ldexp log log2 lround pow sqrt",
    "condition_variable": "condition_variable condition_variable_any cv_status",
    "cstdio": "FILE fclose fflush fopen fprintf fputs fread fwrite perror printf puts snprintf",
    "cstdlib": "abort atoi exit getenv strtod strtol strtoul strtoull",
    "cstring": "memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp strncpy strrchr strstr",
    "deque": "deque",
    "functional": "bind_front cref equal_to function greater hash invoke less minus multiplies plus ref "
    "reference_wrapper",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "addressof enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock",
    "numeric": "accumulate gcd iota",
    "optional": "make_optional nullopt optional",
    "queue": "priority_queue queue",
    "set": "multiset set",
    "span": "as_bytes span",
    "stdexcept": "invalid_argument length_error logic_error out_of_range runtime_error",
    "string": "getline stod stoi stol stoul stoull string to_string",
    "string_view": "string_view",
    "system_error": "error_code system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply forward_as_tuple make_tuple tie tuple",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "variant": "get_if holds_alternative variant visit",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
USE = re.compile(r"\bstd::(\w+)|\b(PRI[diux]\d+)\b")
NO_CODE = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])'")
SUFFIXES = {".h", ".cuh", ".inc", ".cc", ".cu"}
FOLDERS = ("include", "src", "tests")


class Includes:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._direct: dict[Path, tuple[set[str], list[Path]]] = {}

    def _read(self, path: Path) -> tuple[set[str], list[Path]]:
        if path not in self._direct:
            standard, own = set(), []
            for quoted, header in INCLUDE.findall(path.read_text(encoding="utf-8")):
                if header:
                    standard.add(header)
                    continue
                candidates = [folder / quoted for folder in (path.parent, *(self.root / name for name in FOLDERS))]
                own += [found.resolve() for found in candidates if found.is_file()][:1]
            self._direct[path] = standard, own
        return self._direct[path]

    def headers(self, path: Path) -> set[str]:
        """The headers of the standard library that a source includes, directly or through headers of the root."""
        found: set[str] = set()
        seen, pending = {path}, [path]
        while pending:
            standard, own = self._read(pending.pop())
            found |= standard
            pending += [header for header in own if header not in seen]
            seen.update(own)
        return found


def precompiled(root: Path) -> set[str]:
    path = root / "cmake" / "precompiled.cmake"
    listed = re.search(r"set\(precompiled_headers\s([^)]*)\)", path.read_text(encoding="utf-8"))
    return set(re.findall(r"<(\w+)>", listed[1])) if listed else set()


def problems(root: Path) -> Iterator[str]:
    for header in sorted(precompiled(root) - NAMES.keys()):
        yield f"cmake/precompiled.cmake: <{header}> has no row in tools/check_includes.py"
    includes = Includes(root)
    for path in sorted(path for top in ("src", "tests") for path in (root / top).rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        headers = includes.headers(path.resolve())
        reported = set()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name, macro in USE.findall(NO_CODE.sub("", line)):
                needed = HEADER_OF.get(name or macro)
                if needed and needed not in headers and needed not in reported:
                    reported.add(needed)
                    yield f"{path.relative_to(root)}:{number}: {name or macro} needs <{needed}>"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    found = list(problems(parser.parse_args().root.resolve()))
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"includes: {len(found)} problems" if found else "includes: complete")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
