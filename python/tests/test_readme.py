"""The README's Python runs as it stands there and does what it says."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import unittest

import bilevel  # noqa: F401  before torch: it chooses the BLAS kernels
import torch

README = pathlib.Path(os.environ["BILEVEL_SOURCE_DIR"]) / "README.md"


def run(block: str) -> dict:
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, str(README), "exec"), names)
    names["printed"] = printed.getvalue()
    return names


class Readme(unittest.TestCase):
    def setUp(self) -> None:
        self.blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)

    def test_cleaning_finds_the_mistakes(self) -> None:
        names = run(self.blocks[0])
        suspects = set(names["result"].suspects)
        self.assertGreaterEqual(len(suspects & set(range(15))), 13)
        self.assertLessEqual(len(suspects), 20)
        self.assertLess(names["result"].weights[:15].mean().item(), 0.2)

    def test_tuning_lowers_the_validation_loss(self) -> None:
        names = run(self.blocks[1])
        untuned = run(self.blocks[1].replace("outer_rate=0.1", "outer_rate=1e-9"))
        self.assertLess(names["result"].outer_loss, 0.95 * untuned["result"].outer_loss)
        with torch.no_grad():
            loss = (names["net"](names["valid"]) - names["clean"]).square().mean().item()
        self.assertAlmostEqual(loss, names["result"].outer_loss, places=5)


if __name__ == "__main__":
    unittest.main()
