"""scripts/compare-outputs: a difference in the last digit is found and named, and a clock is no difference."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

source = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(source / "scripts"))
sys.dont_write_bytecode = True

from outputs.differences import differences  # noqa: E402
from outputs.inputs import npy  # noqa: E402
from outputs.record import ListError, read_list  # noqa: E402

FOLDERS = ["/somewhere/before", "/somewhere/after"]


def found(name, before, after):
    old, new = (text if isinstance(text, bytes) else text.encode() for text in (before, after))
    return list(differences(name, old, new, FOLDERS))


def checkpoint(seconds, loss, weight):
    tensors = {"solve/records": ("float64", [1, 12], [1.0, seconds, 2, 3, 4, 5, 6, seconds, loss, 7, 0, 0]),
               "w": ("float32", [2], [1.0, weight])}
    data = {name: struct.pack(f"<{len(values)}{'d' if dtype == 'float64' else 'f'}", *values)
            for name, (dtype, _, values) in tensors.items()}
    header = json.dumps({"data_bytes": sum(map(len, data.values())), "machine": {"threads": seconds},
                         "metadata": {"solve": {"seconds": seconds, "direction_norm": loss}},
                         "tensors": [{"name": name, "dtype": tensors[name][0], "shape": tensors[name][1],
                                      "bytes": len(data[name])} for name in data]}).encode()
    return (b"bilevel\n" + struct.pack("<IIQ", 1, 0, len(header)) + header + b"".join(data.values())
            + str(seconds).encode().ljust(64))


class Differences(unittest.TestCase):
    def test_json_is_compared_digit_by_digit(self):
        before = '{"history": [{"seconds": 0.1, "outer_loss": 0.25}], "unit_seconds": {"hessian": 1.5}}'
        self.assertEqual(found("1.out", before, before.replace("0.1", "0.2").replace("1.5", "2.5")), [])
        self.assertEqual(found("1.out", before, before.replace("0.25", "0.25000000000000006")),
                         [".history[0].outer_loss: 0.25 | 0.25000000000000006"])
        self.assertEqual(found("1.out", '{"n": 1}', '{"n": 1.0}'), [".n: 1 | 1.0"])
        self.assertEqual(found("1.out", '{"a": 1, "b": 2}', '{"b": 2, "c": true}'), [".a: gone", ".c: new, true"])
        self.assertEqual(found("1.out", '{"a": 1, "b": 2}', '{"b": 2, "a": 1}'), [".: its keys are in another order"])
        self.assertEqual(found("1.out", '{"a": [1, 2]}', '{"a": [1]}'), [".a: 2 elements | 1"])

    def test_seconds_that_were_asked_for_are_compared(self):
        self.assertEqual(found("config.json", '{"--budget-seconds": "1"}', '{"--budget-seconds": "2"}'),
                         ['.--budget-seconds: "1" | "2"'])
        self.assertEqual(found("a.json", '{"seconds": 1}', '{"seconds": "1"}'), ['.seconds: 1 | "1"'])

    def test_json_inside_a_text_and_long_texts_are_looked_into(self):
        nested = json.dumps({"--choice": [json.dumps({"method": "cg", "diagnosis_seconds": 1.5})]})
        self.assertEqual(found("config.json", nested, nested.replace("1.5", "2.5")), [])
        self.assertEqual(found("config.json", nested, nested.replace("cg", "minres")),
                         ['.--choice[0] as JSON .method: "cg" | "minres"'])
        before, after = "a" * 300 + " one", "a" * 300 + " two"
        self.assertEqual(found("1.out", before, after),
                         [f'line 1: ...{"a" * 20} one" | ...{"a" * 20} two"'])

    def test_records_are_compared_line_by_line(self):
        lines = '{"step": 0, "seconds": 1}\n{"step": 1, "seconds": 2}\n'
        self.assertEqual(found("metrics.jsonl", lines, lines.replace("2}", "3}")), [])
        self.assertEqual(found("metrics.jsonl", lines, lines.replace('"step": 1', '"step": 2')), ["line 2 .step: 1 | 2"])

    def test_text_for_people_hides_clocks_and_folders(self):
        table = " step   seconds      loss\n    1     0.006   0.21891\n   10    10.012       0.2\n\nended after 0.1 s in /somewhere/before/x\n"
        later = " step   seconds      loss\n    1     2.106   0.21891\n   10     9.012       0.2\n\nended after 2.53 s in /somewhere/after/x\n"
        self.assertEqual(found("1.out", table, later), [])
        self.assertEqual(found("1.out", table, later.replace("0.21891", "0.21892")),
                         ['line 2: "    1 #########   0.21891" | "    1 #########   0.21892"'])
        self.assertEqual(found("1.err", "1/10, 914.9 a second, 5 s left", "1/10, 88 a second, 1 s left"), [])
        self.assertEqual(found("1.err", "one\ntwo\n", "two\n"), ['line 1: "one" | not there'])

    def test_tables_and_pages_hide_columns_of_seconds(self):
        self.assertEqual(found("runs.csv", "seed,seconds,loss\n0,0.1,2\n", "seed,seconds,loss\n0,0.3,2\n"), [])
        self.assertEqual(found("runs.csv", "seed,seconds,loss\n0,0.1,2\n", "seed,seconds,loss\n0,0.3,4\n"),
                         ['line 2: "0,#,2" | "0,#,4"'])
        quoted = 'seed,seconds,loss\n"f(x, w)",0.1,2\n'
        self.assertEqual(found("runs.csv", quoted, quoted.replace("0.1", "0.3")), [])
        table = "| name | time, s |\n|------|--------:|\n| a    |     1.5 |\n"
        self.assertEqual(found("t.md", table, table.replace("time, s", "   time, s").replace("1.5", "0.25")), [])
        self.assertEqual(found("t.md", table, table.replace("| a", "| b")), ['line 3: "| a    |#|" | "| b    |#|"'])
        self.assertEqual(found("t.tex", "a & b & time, s \\\\\n1 & 2 & 3.5 \\\\\n", "a & b & time, s \\\\\n1 & 2 & 4 \\\\\n"), [])
        self.assertEqual(found("1.out", "  loss      1\n  seconds   2\n", "  loss      1\n  seconds   30\n"), [])
        self.assertEqual(found("1.out", "  loss      1\n  seconds   2\n", "  loss      3\n  seconds   2\n"),
                         ['line 1: "  loss      1" | "  loss      3"'])
        page = '<table><thead><tr><th scope="col">step</th><th scope="col">seconds</th><th scope="col">loss</th></tr></thead>' \
               '<tr><th scope="row">1</th><td>0.5</td><td>2</td></tr>\n<div class="view view-seconds">\n' \
               '<img src="data:image/svg+xml;base64,AAAA">\n</div>\n<img src="data:image/svg+xml;base64,BBBB">\n'
        self.assertEqual(found("report.html", page, page.replace("0.5", "0.75").replace("AAAA", "CCCC")), [])
        self.assertEqual(len(found("report.html", page, page.replace("BBBB", "CCCC"))), 1)
        self.assertEqual(len(found("report.html", page, page.replace("<td>2<", "<td>3<"))), 1)

    def test_arrays_are_named_with_their_first_difference(self):
        self.assertEqual(found("x.npy", npy("d", (2, 2), [1, 2, 3, 4]), npy("d", (2, 2), [1, 2, 3.5, 5])),
                         ["array: 2 of 4 numbers differ (<f8, shape [2, 2]); the first at [1, 0]: 3.0 | 3.5"])
        self.assertEqual(len(found("x.npy", npy("d", (4,), [1, 2, 3, 4]), npy("d", (2, 2), [1, 2, 3, 4]))), 1)

    def test_checkpoints_are_compared_by_what_is_in_them(self):
        self.assertEqual(found("checkpoint", checkpoint(1, 0.5, 3), checkpoint(2, 0.5, 3)), [])
        self.assertEqual(found("checkpoint", checkpoint(1, 0.5, 3), checkpoint(1, 0.5, 4)),
                         ["tensor w: 1 of 2 numbers differ (float32, shape [2]); the first at [1]: 3.0 | 4.0"])
        self.assertEqual(found("checkpoint", checkpoint(1, 0.5, 3), checkpoint(2, 0.75, 3)),
                         ["metadata.solve.direction_norm: 0.5 | 0.75",
                          "tensor solve/records: 1 of 12 numbers differ (float64, shape [1, 12]); the first at [0, 8]: "
                          "0.5 | 0.75"])

    def test_other_bytes_have_an_offset(self):
        self.assertEqual(found("a.png", b"\x89PNG\xff1", b"\x89PNG\xff2"), ["other bytes from offset 5 on (6 | 6 bytes)"])


PROGRAM = """#!/usr/bin/env python3
# Stands for the program: writes a run with the number NUMBER.
import pathlib, sys, time
if "--help" in sys.argv:
    print("Options of NUMBER")
elif "--out" in sys.argv:
    run = pathlib.Path("run")
    run.mkdir()
    (run / "run.json").write_text('{"version": "1", "machine": {"cpu": "one"}, "started": "%s"}' % time.time())
    print('{"loss": NUMBER, "seconds": %s}' % time.time())
else:
    sys.exit(2)
"""


class Recording(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "list.txt").write_text("kind = a b\nsolve-$kind: solve --problem $kind --out run\nrefuse: slove\n")

    def script(self, *words):
        return subprocess.run([sys.executable, source / "scripts/compare-outputs", *words], capture_output=True, text=True)

    def record(self, name, number):
        program = self.folder / f"program-{name}"
        program.write_text(PROGRAM.replace("NUMBER", number))
        program.chmod(0o755)
        done = self.script("record", program, self.folder / name, "--list", self.folder / "list.txt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 runs of 3 commands recorded", done.stdout)

    def test_two_recordings_are_equal_or_say_where_they_differ(self):
        self.record("before", "1.5")
        self.record("again", "1.5")
        self.record("after", "1.25")
        same = self.script("compare", self.folder / "before", self.folder / "again")
        self.assertEqual((same.returncode, same.stdout),
                         (0, "3 runs: 3 equal to the bit, 0 different\nhelp: 1 texts, all equal\n"))
        other = self.script("compare", self.folder / "before", self.folder / "after")
        self.assertEqual(other.returncode, 1)
        self.assertEqual(other.stdout.splitlines(),
                         ["solve-a", "  1.out: .loss: 1.5 | 1.25", "solve-b", "  1.out: .loss: 1.5 | 1.25",
                          "3 runs: 1 equal to the bit, 2 different", "different in stdout (2 runs)",
                          '  help/bilevel.txt: line 1: "Options of 1.5" | "Options of 1.25"', "help: 1 texts, 1 different"])

    def test_a_part_of_the_list_is_recorded_and_compared(self):
        self.record("before", "1.5")
        done = self.script("record", self.folder / "program-before", self.folder / "part", "--only", "solve-b",
                           "--list", self.folder / "list.txt")
        self.assertIn("1 runs of 1 commands recorded", done.stdout)
        part = self.script("compare", self.folder / "before", self.folder / "part", "--only", "solve-b")
        self.assertEqual((part.returncode, part.stdout),
                         (0, "1 runs: 1 equal to the bit, 0 different\n"
                             "help: not compared: a recording by --only has none\n"))
        whole = self.script("compare", self.folder / "before", self.folder / "part")
        self.assertEqual(whole.returncode, 1)
        self.assertIn("only in the recording before: solve-a, refuse\n", whole.stdout)

    def test_a_folder_that_is_no_recording_is_refused(self):
        done = self.script("compare", self.folder, self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no recording.json in it", done.stderr)

    def test_a_list_with_an_undefined_word_is_refused(self):
        (self.folder / "bad.txt").write_text("solve: solve --problem $problem\n")
        with self.assertRaisesRegex(ListError, "line 1: a word that no line before it defines"):
            read_list(self.folder / "bad.txt")


if __name__ == "__main__":
    unittest.main()
