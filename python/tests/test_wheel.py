"""`pip install .` with a package that is built already: what the wheel holds, and that it imports."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

import bilevel

SOURCE = pathlib.Path(os.environ["BILEVEL_SOURCE_DIR"])
PACKAGE = pathlib.Path(bilevel.__file__).parent


def has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has_pip(), "pip is not installed (python3-pip)")
class Wheel(unittest.TestCase):
    def pip(self, *arguments: str) -> None:
        ran = subprocess.run(
            [sys.executable, "-m", "pip", *arguments, "--no-index", "--no-deps", "--disable-pip-version-check"],
            env={**os.environ, "BILEVEL_BUILT_PACKAGE": str(PACKAGE), "PYTHONPATH": ""}, capture_output=True, text=True, check=False,
        )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_the_wheel_is_whole_and_imports(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.pip("wheel", "--no-build-isolation", "--wheel-dir", folder, str(SOURCE))
            (name,) = pathlib.Path(folder).glob("bilevel-*.whl")
            self.look_at(name)
            self.pip("install", "--target", f"{folder}/there", str(name))
            printed = subprocess.run(
                [sys.executable, "-c", "import bilevel; print(bilevel.__version__, bilevel.__file__)"],
                env={**os.environ, "PYTHONPATH": f"{folder}/there"}, capture_output=True, text=True, check=True,
            ).stdout
            version, place = printed.split()
            self.assertTrue(place.startswith(f"{folder}/there/"))
            self.assertIn(f"bilevel-{version}-", name.name)

    def look_at(self, name: pathlib.Path) -> None:
        with zipfile.ZipFile(name) as wheel:
            files = {entry: wheel.read(entry) for entry in wheel.namelist()}
        record = next(entry for entry in files if entry.endswith("/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[record].decode()))}
        self.assertEqual(set(rows), set(files))
        for entry, data in files.items():
            if entry != record:
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual(rows[entry], [f"sha256={digest}", str(len(data))])
        for needed in ("bilevel/__init__.py", "bilevel/_jobs.pyi", "bilevel/py.typed", "bilevel/sklearn.py"):
            self.assertIn(needed, files)
        self.assertTrue(any(entry.startswith("bilevel/_core.") and entry.endswith(".so") for entry in files))


if __name__ == "__main__":
    unittest.main()
