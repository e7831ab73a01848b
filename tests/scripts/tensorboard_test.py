"""Event files of `--tensorboard`, read by a small reader written from the format: TFRecord's frames with both checksums,
and as much of the Event message as TensorBoard shows."""

import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["BILEVEL_PROGRAM"]
NAME = "events.out.tfevents.bilevel"


def shifted(value):
    """A byte of zeros behind the value, by the polynomial of RFC 3720."""
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


TABLE = [shifted(byte) for byte in range(256)]


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def masked(data):
    value = crc32c(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = path.read_bytes()
    while data:
        length, of_length = struct.unpack("<QI", data[:12])
        if masked(data[:8]) != of_length:
            raise AssertionError("the checksum of a length")
        event, (of_event,) = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])
        if masked(event) != of_event:
            raise AssertionError("the checksum of an event")
        yield event
        data = data[16 + length:]


def varint(data):
    value = 0
    for i, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, data[i + 1:]
    raise AssertionError("a number without an end")


def fields(message):
    while message:
        key, message = varint(message)
        kind = key & 7
        if kind == 0:
            value, message = varint(message)
        elif kind == 2:
            length, message = varint(message)
            value, message = message[:length], message[length:]
        else:
            width, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            (value,), message = struct.unpack(form, message[:width]), message[width:]
        yield key >> 3, value


def events(path):
    for record in records(path):
        event = {"step": 0, "scalars": {}, "images": {}}
        for number, value in fields(record):
            if number == 1:
                event["wall_time"] = value
            elif number == 2:
                event["step"] = value
            elif number == 3:
                event["file_version"] = value.decode()
            elif number == 5:
                for _, part in fields(value):
                    one = dict(fields(part))
                    if 2 in one:
                        event["scalars"][one[1].decode()] = one[2]
                    if 4 in one:
                        event["images"][one[1].decode()] = dict(fields(one[4]))
        yield event


def numbers(line, before=""):
    found = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= numbers(value, f"{before}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and before + name != "step":
            found[before + name] = value
    return found


class Tensorboard(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="bilevel-tensorboard-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def wait_for(self, happened):
        for _ in range(1200):
            time.sleep(0.1)
            if happened():
                return
        self.fail("it did not happen in two minutes")

    def run_program(self, *words):
        done = subprocess.run([PROGRAM, *map(str, words), "--quiet"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def expect_metrics(self, run):
        """The event file has what metrics.jsonl has, in its order; returns what is left."""
        all_events = list(events(run / NAME))
        self.assertEqual(all_events[0]["file_version"], "brain.Event:2")
        self.assertLess(abs(all_events[0]["wall_time"] - time.time()), 600)
        scalars = [event for event in all_events if event["scalars"]]
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertGreater(len(lines), 1)
        self.assertEqual([event["step"] for event in scalars], [line["step"] for line in lines])
        for event, line in zip(scalars, lines):
            expected = {name: struct.unpack("<f", struct.pack("<f", value))[0] for name, value in numbers(line).items()}
            self.assertEqual(event["scalars"], expected)
        return all_events

    def test_the_checksum_is_castagnoli_s(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the check value of the catalogue of CRCs

    def test_solve_writes_its_records(self):
        run = self.folder / "solve"
        self.run_program("solve", "--problem", "ridge", "--iterations", 20, "--tensorboard", "--out", run)
        self.expect_metrics(run)
        plain = self.folder / "plain"
        self.run_program("solve", "--problem", "ridge", "--iterations", 20, "--out", plain)
        self.assertFalse((plain / NAME).exists())

    def test_a_run_that_was_stopped_goes_on_with_its_records_once(self):
        run = self.folder / "stopped"
        words = [PROGRAM, "solve", "--problem", "ridge", "--iterations", "10000000", "--records", "20000", "--tensorboard",
                 "--save-every", "0.2", "--out", str(run), "--quiet"]
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
            self.wait_for(lambda: (run / "checkpoint").exists() and len((run / "metrics.jsonl").read_text().splitlines()) > 3)
            process.kill()
        began = time.time()
        with subprocess.Popen([PROGRAM, "solve", "--resume", str(run), "--quiet"], stderr=subprocess.DEVNULL) as process:
            self.wait_for(lambda: (run / "metrics.jsonl").stat().st_mtime > began + 1)
            process.send_signal(signal.SIGINT)
            process.wait()
        self.expect_metrics(run)

    def test_search_shows_the_cell(self):
        run = self.folder / "search"
        labels = [i % 2 for i in range(40)]
        pixels = bytes(200 if (i // 8 + labels[n]) % 2 else n for n in range(40) for i in range(64))
        (self.folder / "images").write_bytes(struct.pack(">HBBIII", 0, 8, 3, 40, 8, 8) + pixels)
        (self.folder / "labels").write_bytes(struct.pack(">HBBI", 0, 8, 1, 40) + bytes(labels))
        self.run_program("search", "--data", self.folder / "images", "--labels", self.folder / "labels", "--channels", 4,
                         "--cells", 1, "--epochs", 2, "--batch", 10, "--tensorboard", "--threads", 1, "--out", run)
        images = {name: image for event in self.expect_metrics(run) for name, image in event["images"].items()}
        if shutil.which("dot") is None:
            self.skipTest("graphviz is not here: there is no picture")
        cell = images["cell"]
        self.assertTrue(cell[4].startswith(b"\x89PNG\r\n\x1a\n"))
        self.assertEqual((cell[2], cell[1]), struct.unpack(">II", cell[4][16:24]))

    def test_a_job_without_steps_writes_its_result(self):
        table = "a,b,kind\n" + "".join(f"{i % 7},{i % 5},{'yn'[i % 7 > 3]}\n" for i in range(60))
        (self.folder / "t.csv").write_text(table)
        run = self.folder / "tuned"
        self.run_program("tune", "--train", self.folder / "t.csv", "--tensorboard", "--threads", 1, "--out", run)
        last = list(events(run / NAME))[-1]
        self.assertTrue(last["scalars"])


if __name__ == "__main__":
    unittest.main()
