"""The documents of the tree as pages of the site: pages.py OUT.

README.md is the first page. A file of the tree that a page links to (a header, an example, a script) becomes a page that
shows it, so that no link leads out of the site.
"""

from __future__ import annotations

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".cu": "cpp", ".py": "python", ".cmake": "cmake", ".txt": "text", "": "bash"}


def pages() -> dict[pathlib.Path, pathlib.Path]:
    """Where each document of the tree stands in the site."""
    found = {ROOT / "README.md": pathlib.Path("index.md"), ROOT / "CONTRIBUTING.md": pathlib.Path("contributing.md")}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        found[page] = page.relative_to(ROOT / "docs")
    return found


def relative(target: pathlib.Path, page: pathlib.Path) -> str:
    return pathlib.Path(os.path.relpath(target, page.parent)).as_posix()


class Pages:
    def __init__(self, out: pathlib.Path) -> None:
        self.out = out
        self.places = pages()
        self.shown: dict[pathlib.Path, pathlib.Path] = {}  # files of the tree that are no documents

    def place_of(self, file: pathlib.Path) -> pathlib.Path:
        if file in self.places:
            return self.places[file]
        name = file.relative_to(ROOT)
        return self.shown.setdefault(file, pathlib.Path("files") / f"{name.as_posix()}.md")

    def linked(self, source: pathlib.Path, text: str) -> str:
        page = self.places[source]

        def replaced(found: re.Match[str]) -> str:
            address, _, anchor = found[2].partition("#")
            if re.match(r"[a-z]+:", address) or not address:
                return found[0]
            file = (source.parent / address).resolve()
            if not file.exists():
                raise SystemExit(f"{source.relative_to(ROOT)}: there is no {address}")
            return found[1] + relative(self.place_of(file), page) + (f"#{anchor}" if anchor else "") + found[3]

        return LINK.sub(replaced, text)

    def write(self) -> None:
        for source, page in self.places.items():
            self.put(page, self.linked(source, source.read_text(encoding="utf-8")))
        for file, page in self.shown.items():
            name = file.relative_to(ROOT).as_posix()
            if file.is_dir():
                names = "\n".join(sorted(inside.name for inside in file.iterdir()))
                self.put(page, f"# {name}/\n\n~~~~text\n{names}\n~~~~\n")
                continue
            language = LANGUAGES.get(file.suffix, "text")
            self.put(page, f"# {name}\n\n~~~~{language}\n{file.read_text(encoding='utf-8')}~~~~\n")

    def put(self, page: pathlib.Path, text: str) -> None:
        (self.out / page).parent.mkdir(parents=True, exist_ok=True)
        (self.out / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    Pages(pathlib.Path(sys.argv[1])).write()
