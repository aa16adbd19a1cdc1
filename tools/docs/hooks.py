"""The hooks of mkdocs.yml: pages from outside docs/, API pages, and links into the source tree.

Pages link to files of the repository by relative paths, as on GitHub. Here these links lead to copies of the files
below `source/`, and root pages such as HACKING.md become pages of the site. Missing documentation of public functions
is logged as a warning, which fails a strict build.
"""

from __future__ import annotations

import importlib
import logging
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
headers: Any = importlib.import_module("headers")
tables: Any = importlib.import_module("tables")

ROOT = Path(__file__).parents[2]
# Page of the repository -> page of the site.
PAGES = {
    "README.md": "index.md",
    "HACKING.md": "HACKING.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "bench/results/README.md": "results.md",
}
PYTHON_MODULES = (
    "narrowcast",
    "narrowcast.cuda",
    "narrowcast.cuda_batch",
    "narrowcast.files",
    "narrowcast.integrations.diffusers",
    "narrowcast.integrations.graphbolt",
    "narrowcast.integrations.pyg",
    "narrowcast.integrations.sglang",
    "narrowcast.integrations.vllm",
    "narrowcast.integrations.vllm_transfer",
    "narrowcast.integrations.vllm_weights",
    "narrowcast.plan",
    "narrowcast.ratios",
    "narrowcast.safetensors",
    "narrowcast.store",
    "narrowcast.plots",
    "narrowcast.torch",
    "narrowcast.torch_backend",
    "narrowcast.types",
)
log = logging.getLogger("mkdocs.hooks.narrowcast")

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Lists the pages of the C API in the navigation."""
    entries = [{title: page} for page, title, _ in c_pages()]
    config.nav = [{"C API": entries} if "C API" in section else section for section in config.nav]
    return config


def on_files(files: Any, config: Any) -> Any:
    new_file = importlib.import_module("mkdocs.structure.files").File.generated
    for source, page in PAGES.items():
        files.append(new_file(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for page, _, content in c_pages():
        files.append(new_file(config, page, content=content))
    for path in public_headers():
        for name in headers.parse(path).undocumented():
            log.warning("include/narrowcast/%s: %s has no comment", path.name, name)
    package = importlib.import_module("griffe").load("narrowcast", search_paths=[str(ROOT / "python")])
    for name in PYTHON_MODULES:
        module = package if name == "narrowcast" else package[name.removeprefix("narrowcast.")]
        for missing in undocumented(module):
            log.warning("python: %s has no docstring", missing)
        files.append(new_file(config, f"api/python/{name}.md", content=python_page(name, module)))
    for target in sorted({target for page in repository_pages() for target in targets(page)}):
        if (ROOT / target).is_file() and site_path(target).startswith("source/"):
            files.append(new_file(config, site_path(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    site = page.file.src_uri
    source = {name: path for path, name in PAGES.items()}.get(site, f"docs/{site}")
    return rewritten(markdown, source, posixpath.dirname(site))


# --- C ---


def public_headers() -> list[Path]:
    return sorted((ROOT / "include" / "narrowcast").glob("*.h"))


def c_pages() -> Iterator[tuple[str, str, str]]:
    """Path, title and text of the pages that come from include/narrowcast."""
    for name, page_of in {"operations": tables.operations_page, "codecs": tables.codecs_page}.items():
        path = ROOT / "include" / "narrowcast" / f"{name}.def"
        if path.is_file():
            yield f"api/c/table_{name}.md", name.capitalize(), page_of(path)
    for path in public_headers():
        yield f"api/c/{path.stem}.md", path.name, headers.page(headers.parse(path))


# --- links ---


def repository_pages() -> Iterator[str]:
    """The pages that are written by hand."""
    yield from PAGES
    for path in (ROOT / "docs").rglob("*.md"):
        yield path.relative_to(ROOT).as_posix()


def targets(page: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    text = _CODE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for link in _LINK.finditer(text):
        path = link[2].partition("#")[0]
        if path and not re.match(r"\w+:", path):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def site_path(target: str) -> str:
    """Where a file of the repository is on the site."""
    if target in PAGES:
        return PAGES[target]
    if (ROOT / target).is_dir() and f"{target}/README.md" in PAGES:
        return PAGES[f"{target}/README.md"]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    # A browser shows text files; it would download a .cuh.
    return f"source/{target}" if target.endswith(".png") else f"source/{target}.txt"


def rewritten(markdown: str, source: str, site_folder: str) -> str:
    """The links of a page, whose path in the repository is `source`, as links of the site."""

    def link(found: re.Match[str]) -> str:
        path, hash_mark, anchor = found[2].partition("#")
        if not path or re.match(r"\w+:", path):
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        return f"{found[1]}{posixpath.relpath(site_path(target), site_folder or '.')}{hash_mark}{anchor}{found[3]}"

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(link, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(link, markdown[end:])])


# --- Python ---


def public_names(module: Any) -> list[str]:
    """The names that a module exports; for modules without __all__, those that it defines."""
    if module.exports:
        return [str(name) for name in module.exports]
    return [name for name, member in module.members.items() if not name.startswith("_") and not member.is_alias]


def documented_objects(module: Any) -> Iterator[Any]:
    for name in public_names(module):
        member = module[name]
        member = member.final_target if member.is_alias else member
        if member.is_function or member.is_class:
            yield member


def undocumented(module: Any) -> Iterator[str]:
    """Public functions, classes, methods and properties without a docstring, and the module itself."""
    if not module.docstring:
        yield str(module.path)
    for member in documented_objects(module):
        if not member.docstring:
            yield str(member.path)
        if member.is_class:
            for name, part in member.all_members.items():
                is_property = part.is_attribute and "property" in part.labels
                if not name.startswith("_") and (part.is_function or is_property) and not part.docstring:
                    yield str(part.path)


def python_page(name: str, module: Any) -> str:
    text = f"# {name}\n\n{module.docstring.value if module.docstring else ''}\n"
    for member in documented_objects(module):
        text += f"\n::: {member.path}\n"
    return text
