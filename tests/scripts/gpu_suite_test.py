"""bench/gpu_suite on programs that do nothing: what is stopped is resumed, what fails is run again, what ended is not."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUITE = pathlib.Path(__file__).resolve().parents[2] / "bench/gpu_suite"
# Like `bilevel search`: makes its folder, works for some time, and ends with 130 where it is asked to stop.
PROGRAM = """#!/usr/bin/env python3
import pathlib, signal, sys, time
words = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
if "--out" in words:
    run = pathlib.Path(words[words.index("--out") + 1])
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    time.sleep(60)
"""


class GpuSuite(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        for name in ("tests", "bench"):
            (self.folder / name).mkdir()
        self.put("bilevel", PROGRAM)
        self.put("tests/test_nas", "#!/bin/sh\nexit 3\n")
        self.put("tests/test_distributed", "#!/bin/sh\nexit 0\n")

    def tearDown(self):
        self.temporary.cleanup()

    def put(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def suite(self, *words):
        done = subprocess.run([sys.executable, SUITE, self.folder / "out", "--build", self.folder, *words],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.returncode, done.stdout

    def how(self):
        state = json.loads((self.folder / "out/state.json").read_text())
        return {name: row["how"] for name, row in state.items()}

    def test_goes_on_where_it_stopped(self):
        code, said = self.suite("--stages", "tests,default,ranks", "--minutes", "0.05")
        self.assertEqual(code, 1, said)
        self.assertIn("time is up", said)
        self.assertEqual(self.how(), {"test-nas": "failed", "test-distributed": "ended",
                                      **{f"default-{seed}": "stopped" for seed in range(4)}})
        self.put("tests/test_nas", "#!/bin/sh\nexit 0\n")
        code, said = self.suite("--stages", "tests,default")
        self.assertEqual(code, 0, said)
        self.assertNotIn("test-distributed", said)  # it had ended
        self.assertEqual(set(self.how().values()), {"ended"})
        _, said = self.suite("--stages", "default", "--list")
        self.assertIn(f"--resume {self.folder / 'out/runs/default-3'}", said)

    def test_names_the_stages_that_there_are(self):
        code, said = self.suite("--stages", "nope")
        self.assertEqual(code, 2)
        self.assertIn("--stages nope: choose from tests, step, ranks", said)


if __name__ == "__main__":
    unittest.main()
