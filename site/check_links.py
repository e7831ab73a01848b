"""Checks that every link and picture of the built site leads to a file of it and, behind a #, to a place in that file:
check_links.py HTML_FOLDER. Addresses of other sites are counted only."""

from __future__ import annotations

import pathlib
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for key, value in attributes:
            if key in ("href", "src") and value:
                self.links.append(value)
            if key in ("id", "name") and value:
                self.places.add(value)


def main(folder: str) -> int:
    root = pathlib.Path(folder).resolve()
    pages = {path: Page(path) for path in root.rglob("*.html")}
    broken, links, others = [], 0, 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                others += 1
                continue
            links += 1
            target = root / parts.path.lstrip("/") if parts.path.startswith("/") else path.parent / unquote(parts.path)
            target = (path if not parts.path else target).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                broken.append(f"{path.relative_to(root)}: there is no {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                broken.append(f"{path.relative_to(root)}: {link} names a place that is not there")
    print("\n".join(broken) or f"{len(pages)} pages, {links} links within the site, all lead somewhere; {others} to other sites")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
