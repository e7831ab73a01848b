"""The reference: C++ from the public headers, Python from the docstrings of the built module. reference.py OUT."""

from __future__ import annotations

import inspect
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = {
    "core": "The mathematics", "hypergradients": "Estimators", "algorithms": "Algorithms", "problems": "Problems",
    "check": "References and verdicts", "jobs": "Jobs", "run": "Runs", "fields": "Field tables", "data": "Files",
}


def public_headers() -> list[str]:
    """bilevel/bilevel.h and what it includes, as cmake/public_headers.cmake finds them."""
    found, waiting = ["bilevel/bilevel.h"], ["bilevel/bilevel.h"]
    while waiting:
        text = (ROOT / waiting.pop()).read_text(encoding="utf-8")
        for name in re.findall(r'^#include "(bilevel/[^"]+)"', text, re.MULTILINE):
            if name not in found:
                found.append(name)
                waiting.append(name)
    return sorted(found)


def header_section(name: str) -> str:
    """Its opening comment as a text, its declarations as they are."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line != "#pragma once" and not line.startswith("#include")]
    opening = []
    while lines and lines[0].startswith("//"):
        opening.append(lines.pop(0)[2:].removeprefix(" "))
    prose, code = [], []
    for line in opening:  # indented lines of it are code
        (code if line.startswith("    ") else prose).append(line)
    body = "\n".join(lines).strip("\n")
    body = re.sub(r"\n{3,}", "\n\n", body)
    example = "\n~~~~cpp\n" + "\n".join(line[4:] for line in code) + "\n~~~~\n" if code else ""
    return f"## {name}\n\n{' '.join(prose).strip()}\n{example}\n~~~~cpp\n{body}\n~~~~\n"


def cpp_pages(out: pathlib.Path) -> None:
    headers = [name for name in public_headers() if name.count("/") > 1]
    by_folder: dict[str, list[str]] = {}
    for name in headers:
        by_folder.setdefault(name.split("/")[1], []).append(name)
    order = [*FOLDERS, *sorted(set(by_folder) - set(FOLDERS))]
    index = ["# C++ reference\n\n`#include <bilevel/bilevel.h>` has all of it. The pages are made from the public headers.\n"]
    for folder in (f for f in order if f in by_folder):
        title = FOLDERS.get(folder, folder)
        index.append(f"## [{title}]({folder}.md)\n")
        for name in by_folder[folder]:
            anchor = re.sub(r"[^\w-]", "", name.lower())
            index.append(f"- [{name.split('/')[-1]}]({folder}.md#{anchor})")
        index.append("")
        sections = "\n".join(header_section(name) for name in by_folder[folder])
        (out / f"{folder}.md").write_text(f"# {title}: bilevel/{folder}\n\n{sections}", encoding="utf-8")
    (out / "index.md").write_text("\n".join(index), encoding="utf-8")


def documented(name: str, value: object) -> str:
    text = inspect.getdoc(value) or ""
    if not callable(value):
        return ""
    try:
        parameters = [str(p) for p in inspect.signature(value).parameters.values()]
    except (TypeError, ValueError):
        parameters = ["..."]
    call = f"{name}({', '.join(parameters)})"
    if len(call) > 110:
        call = f"{name}(\n    " + ",\n    ".join(parameters) + ",\n)"
    return f"~~~~python\n{call}\n~~~~\n\n~~~~text\n{text}\n~~~~\n"


def python_page(out: pathlib.Path) -> None:
    import bilevel
    import bilevel.sklearn

    parts = ["# Python reference\n\nMade from the module's docstrings, whose keywords come from the field tables. "
             "[Python](../python.md) explains how they fit together.\n"]
    for module, names in ((bilevel, bilevel.__all__), (bilevel.sklearn, ["CleaningClassifier", "TunedLogisticRegression"])):
        for name in names:
            value = getattr(module, name)
            if name.startswith("_"):
                continue
            parts.append(f"## {module.__name__}.{name}\n\n{documented(name, value)}")
            if not inspect.isclass(value) or issubclass(value, BaseException):
                continue
            for key, member in vars(value).items():
                if not key.startswith("_") and callable(member) and inspect.getdoc(member):
                    parts.append(f"### {name}.{key}\n\n{documented(key, member)}")
    (out / "python.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) / "reference"
    folder.mkdir(parents=True, exist_ok=True)
    cpp_pages(folder)
    python_page(folder)
