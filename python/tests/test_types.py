"""The package's types, by mypy: the stubs are made from the field tables."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import bilevel

PACKAGE = pathlib.Path(bilevel.__file__).parent

RIGHT = '''
import torch
import bilevel

problem = bilevel.Problem(outer=lambda x, w: w.sum(), inner=lambda x, w: (w - x).square().sum())
found = bilevel.hypergradient(problem, torch.zeros(3), torch.zeros(3), method="cg", terms=5, damping=0.1)
result = bilevel.solve(problem, torch.zeros(3), torch.zeros(3), algorithm="aid-cg", iterations=3, progress=True)
bilevel.clean([[0.0]], [1], folds=5, out="runs/a")
version: str = bilevel.__version__
'''
WRONG = '''
import bilevel

bilevel.solve("ridge", iteration=3)
bilevel.solve("ridge", iterations="many")
bilevel.check("ridge", curvature="flat")
bilevel.hypergradient()
'''


@unittest.skipUnless(shutil.which("mypy"), "mypy is not installed")
class Types(unittest.TestCase):
    def mypy(self, *arguments: str) -> str:
        # mypy finds an installed package by its interpreter, and ends at once where a path names the same folder.
        others = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
        path = {} if PACKAGE.parent.name in ("site-packages", "dist-packages") else {"MYPYPATH": str(PACKAGE.parent)}
        done = subprocess.run(
            ["mypy", "--python-executable", sys.executable, "--config-file", f"{self.cache}/mypy.ini",
             "--no-error-summary", "--cache-dir", self.cache, *arguments],
            env={**others, **path}, capture_output=True, text=True,
        )
        self.assertIn(done.returncode, (0, 1), done.stderr)  # 2: it did not look
        return done.stdout

    def setUp(self) -> None:
        self.cache = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.cache)
        # Other people's packages are not looked into: all of torch takes minutes.
        others = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in ("torch", "numpy", "sklearn", "scipy", "pandas"))
        with open(f"{self.cache}/mypy.ini", "w", encoding="utf-8") as file:
            file.write("[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n" + others)

    def test_right_calls_pass_and_wrong_ones_are_found(self) -> None:
        for text, wrong in ((RIGHT, []), (WRONG, [4, 5, 6, 7])):
            with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
                file.write(text)
                file.flush()
                printed = self.mypy(file.name)
            lines = [int(line.split(":")[1]) for line in printed.splitlines() if ": error:" in line]
            self.assertEqual(sorted(set(lines)), wrong, printed)

    def test_the_package_itself(self) -> None:
        self.assertEqual(self.mypy(str(PACKAGE)), "")


if __name__ == "__main__":
    unittest.main()
