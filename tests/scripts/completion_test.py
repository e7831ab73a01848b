"""Manual pages and completions, as groff, bash and zsh read them."""

import os
import pathlib
import pty
import select
import shutil
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["BILEVEL_PROGRAM"]


def run(*words):
    return subprocess.run([PROGRAM, *words], check=True, capture_output=True, text=True).stdout


class Manual(unittest.TestCase):
    @unittest.skipUnless(shutil.which("groff"), "groff is not installed (groff-base)")
    def test_every_page_without_a_warning(self):
        with tempfile.TemporaryDirectory() as folder:
            run("help", "--man-pages", folder)
            pages = sorted(pathlib.Path(folder).glob("*.1"))
            self.assertGreater(len(pages), 20)
            for page in pages:
                with self.subTest(page=page.name):
                    shown = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-P-cbou", str(page)], capture_output=True, text=True,
                                           check=True)
                    self.assertEqual(shown.stderr, "")
                    self.assertTrue("\nNAME\n" in shown.stdout and "\nOPTIONS\n" in shown.stdout)
            text = (pathlib.Path(folder) / "bilevel-search.1").read_text()
        self.assertEqual(text, run("help", "search", "--man"))
        shown = subprocess.run(["groff", "-man", "-Tascii", "-P-cbou"], input=text, capture_output=True, text=True, check=True).stdout
        self.assertIn("--guard-strength (number, at least 0 and at most 1e+06)", shown)
        self.assertIn("bilevel search --resume runs/search-20260101-120000-0", shown)


class Bash(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.script = f"{self.folder}/completion"
        pathlib.Path(self.script).write_text(run("completion", "bash"), encoding="utf-8")
        pathlib.Path(f"{self.folder}/table.csv").touch()

    def complete(self, *lines):
        """What bash would offer at the end of each line."""
        calls = "".join(
            f"COMP_LINE={quoted(line)} COMP_POINT={len(line)}; _bilevel; printf '%s\\n' \"${{COMPREPLY[*]}}\"\n" for line in lines)
        return subprocess.run(["bash", "-c", f"set -u; COMP_WORDBREAKS=' =:'; source {self.script}\n{calls}"], cwd=self.folder,
                              capture_output=True, text=True, check=True).stdout.splitlines()

    def test_commands_options_and_values(self):
        offered = self.complete(
            "bilevel se", "bilevel help exp", "bilevel solve --inner-st", "bilevel solve --algorithm so",
            "bilevel check --methods cg,nys", "bilevel search --dtype ", "bilevel search --epochs ", "bilevel clean --train ta",
            "bilevel data ", "bilevel data show --data-d", "bilevel search --no-f", "bilevel reproduce krmd:to",
            "bilevel search --dtype=d", "bilevel completion z",
        )
        self.assertEqual(offered, [
            "search", "export", "--inner-steps", "soba", "cg,nystrom", "float double", "", "table.csv", "get show", "--data-dir",
            "--no-flip", "toy", "double", "zsh",
        ])

    def test_every_command_is_offered_its_flags(self):
        commands = self.complete("bilevel ")[0].split()
        self.assertGreater(len(commands), 20)
        commands.remove("help")
        for command, flags in zip(commands, self.complete(*(f"bilevel {c} --" for c in commands))):
            self.assertIn("--json" if command != "launch" else "--processes", flags.split(), command)


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


class Zsh(unittest.TestCase):
    """An interactive shell in a terminal, to which keys are typed."""

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_tab_completes(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(f"{folder}/_bilevel").write_text(run("completion", "zsh"), encoding="utf-8")
            child, terminal = pty.fork()
            if child == 0:
                os.chdir(folder)
                os.environ["TERM"] = "dumb"
                os.execvp("zsh", ["zsh", "-f", "-i"])
            try:
                self.dialogue(terminal, folder)
            finally:
                os.close(terminal)
                os.waitpid(child, 0)

    def dialogue(self, terminal, folder):
        setup = f"PS1=; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; unsetopt menu_complete; echo rea''dy\n"
        os.write(terminal, setup.encode())
        self.wait(terminal, "ready")
        for typed, expected in (("bilevel diag", "bilevel diagnose "), ("bilevel solve --inner-ste", "--inner-steps="),
                                ("bilevel solve --algorithm sob", "--algorithm soba"), ("bilevel data sh", "data show"),
                                ("bilevel search --dtype d", "--dtype double"), ("bilevel check --methods cg,nys", "cg,nystrom")):
            with self.subTest(typed=typed):
                os.write(terminal, b"\x15" + b"echo " + b"\x15" + typed.encode() + b"\t")
                self.wait(terminal, expected)

    def wait(self, terminal, expected):
        seen, end = "", time.monotonic() + 20
        while time.monotonic() < end:
            ready, _, _ = select.select([terminal], [], [], 0.2)
            if ready:
                seen += os.read(terminal, 65536).decode(errors="replace")
            if expected in seen:
                return
        self.fail(f"{expected!r} was not shown: {seen!r}")


if __name__ == "__main__":
    unittest.main()
