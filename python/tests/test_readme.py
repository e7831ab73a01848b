"""The Python of README.md, docs/python.md and docs/coming-from.md runs as printed and does what the text says."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile
import unittest

import bilevel  # noqa: F401  before torch: it chooses the BLAS kernels
import torch

SOURCE = pathlib.Path(os.environ["BILEVEL_SOURCE_DIR"])


def run(block: str) -> dict:
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, "a document", "exec"), names)
    names["printed"] = printed.getvalue()
    return names


def blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (SOURCE / document).read_text(encoding="utf-8"), re.DOTALL)


class Readme(unittest.TestCase):
    def test_it_has_one_example(self) -> None:
        self.assertEqual(len(blocks("README.md")), 1)

    def test_cleaning_finds_the_mistakes(self) -> None:
        names = run(blocks("README.md")[0])
        suspects = set(names["result"].suspects)
        self.assertGreaterEqual(len(suspects & set(range(15))), 13)
        self.assertLessEqual(len(suspects), 20)
        self.assertLess(names["result"].weights[:15].mean().item(), 0.2)


class PythonPage(unittest.TestCase):
    def test_tuning_lowers_the_validation_loss(self) -> None:
        (block,) = (block for block in blocks("docs/python.md") if block.startswith("import bilevel\nimport torch\n"))
        names = run(block)
        untuned = run(block.replace("outer_rate=0.1", "outer_rate=1e-9"))
        self.assertLess(names["result"].outer_loss, 0.95 * untuned["result"].outer_loss)
        with torch.no_grad():
            loss = (names["net"](names["valid"]) - names["clean"]).square().mean().item()
        self.assertAlmostEqual(loss, names["result"].outer_loss, places=5)


class ComingFrom(unittest.TestCase):
    """The same job in other libraries: those whose folders HYPERTORCH, HIGHER and BETTY name are run too."""

    def setUp(self) -> None:
        text = (SOURCE / "docs/coming-from.md").read_text(encoding="utf-8")
        self.head = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
        self.blocks = re.findall(r"\*\*(\w+)\*\*\n\n```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual([name for name, _ in self.blocks], ["bilevel", "hypertorch", "higher", "bilevel", "betty"])

    def test_one_hypergradient(self) -> None:
        ours = run(self.head + self.blocks[0][1])["h"]
        self.assertEqual(ours.status, "converged")
        unrolled = run(self.head + self.blocks[0][1].replace('method="cg", terms=20', 'method="reverse"'))["h"]
        for (name, block), ours in zip(self.blocks[1:3], (ours, unrolled)):
            if os.environ.get(name.upper()):
                sys.path.insert(0, os.environ[name.upper()])
                theirs = run(self.head + block)["value"]
                self.assertLess(((ours.value - theirs).norm() / theirs.norm()).item(), 1e-4, name)

    def test_the_whole_loop(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            result = run(self.head + "import bilevel\n" + self.blocks[3][1].replace("runs/tuned", f"{folder}/tuned"))["result"]
        self.assertLess(result.outer_loss, 0.8 * result.history[0]["outer_loss"])
        if os.environ.get("BETTY"):
            sys.path.insert(0, os.environ["BETTY"])
            theirs = run(self.head + self.blocks[4][1])["upper"].module().detach().exp()
            self.assertLess(((result.x.exp() - theirs).abs() / theirs).max().item(), 1e-3)


if __name__ == "__main__":
    unittest.main()
