"""Runs the tutorials and puts what they print and draw into their pages: tutorials.py OUT.

In a page, a block of `console` has commands behind "$ ", and a block of `python` is run by this interpreter; both see the same
folder, one per page. `![text](run:FILE)` is a picture that they left there, the first one of a report; `[text](run:FILE)` is any
other file.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings

import bilevel  # noqa: F401  before numpy and torch: it chooses the BLAS kernels

BLOCK = re.compile(r"^```(console|python)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}


class Tutorial:
    def __init__(self, page: pathlib.Path, folder: pathlib.Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, object] = {}

    def block(self, found: re.Match[str]) -> str:
        kind, text = found[1], found[2]
        if kind == "console":
            return f"```console\n{self.console(text)}```\n"
        printed = self.python(text)
        return found[0] + (f"\n```text\n{printed}```\n" if printed else "")

    def console(self, text: str) -> str:
        out = ""
        commands = re.sub(r"\\\n\s*", lambda continued: continued[0], text)
        for command in re.split(r"^\$ ", commands, flags=re.MULTILINE)[1:]:
            ran = subprocess.run(["bash", "-ec", command], cwd=self.folder, env={**os.environ, **SETTINGS}, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if ran.returncode != 0:
                raise SystemExit(f"{self.page.name}: {command}ended with {ran.returncode}:\n{ran.stdout}")
            out += f"$ {command}{ran.stdout}"
        return out

    def python(self, text: str) -> str:
        printed = io.StringIO()
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(text, self.page.name, "exec"), self.names)  # noqa: S102  a tutorial of ours
        except Exception:
            raise SystemExit(f"{self.page.name}:\n{traceback.format_exc()}") from None
        finally:
            os.chdir(before)
        return printed.getvalue()

    def file(self, found: re.Match[str]) -> str:
        source = self.folder / found[2]
        if not source.exists():
            raise SystemExit(f"{self.page.name}: its commands left no {found[2]}")
        name = f"{self.page.stem}-{found[2].replace('/', '-')}"
        if found[1].startswith("!") and source.suffix == ".html":
            name = name.removesuffix(".html") + ".svg"
            picture = re.search(r'"data:image/svg\+xml;base64,([^"]+)"', source.read_text(encoding="utf-8"))
            if picture is None:
                raise SystemExit(f"{self.page.name}: there is no picture in {found[2]}")
            (self.page.parent / name).write_bytes(base64.b64decode(picture[1]))
        else:
            shutil.copy(source, self.page.parent / name)
        return f"{found[1]}({name})"

    def write(self) -> None:
        text = BLOCK.sub(self.block, self.page.read_text(encoding="utf-8"))
        self.page.write_text(re.sub(r"(!?\[[^\]]*\])\(run:([^)]+)\)", self.file, text), encoding="utf-8")


def main(out: str) -> None:
    warnings.simplefilter("ignore")
    for page in sorted((pathlib.Path(out) / "tutorials").glob("*.md")):
        with tempfile.TemporaryDirectory() as folder:
            print(f"tutorials/{page.name}", file=sys.stderr)
            Tutorial(page, pathlib.Path(folder)).write()


if __name__ == "__main__":
    main(sys.argv[1])
