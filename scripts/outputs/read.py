"""Asks a program to read the run folders of a recording that another version made."""

import json
import pathlib
import shutil
import tempfile

from outputs.differences import differences
from outputs.record import Recorder

FIRST = 3  # differences of one file that are printed


def changed_files(expected, resumed, folders):
    """Each file of a run that ended otherwise than in the recording, with its differences."""
    for path in sorted(path for path in expected.iterdir() if path.is_file()):
        other = resumed / path.name
        if path.name == "run.json":  # says where and when
            continue
        if not other.exists():
            yield path.name, ["not there"]
            continue
        found = [text for text in differences(path.name, path.read_bytes(), other.read_bytes(), folders)
                 if not text.startswith(".folder: ")]
        if found:
            yield path.name, found


class Reading:
    def __init__(self, program, recording, copy):
        self.recording, self.copy = recording, copy
        self.made_in = json.loads((recording / "recording.json").read_text())["folder"]
        self.read = self.refused = self.wrong = 0
        shutil.copytree(recording / "inputs", copy / "inputs")
        self.recorder = Recorder(program, copy)
        self.recorder.machine()

    def ask(self, words, files, name):
        """Whether a command takes the folder; a refusal needs a sentence."""
        code, _, err = self.recorder.call(words, files)
        if code == 0:
            self.read += 1
            return True
        self.refused += 1
        self.wrong += code not in (1, 2) or not err.strip()
        print(f"{name}: bilevel {' '.join(words)}: exit code {code}: {err.decode().strip()}")
        return False

    def folder(self, run):
        name = run.relative_to(self.recording / "runs")
        files = self.copy / "runs" / name.parts[0] / "files"
        if not files.exists():
            shutil.copytree(self.recording / "runs" / name.parts[0] / "files", files)
        place = pathlib.Path(*name.parts[2:]).as_posix()
        self.ask(["show", place, "--json"], files, name)
        if run.name != "stopped":
            self.ask(["report", place, "--json"], files, name)
            return
        command = json.loads((run / "run.json").read_text())["command"]
        if not self.ask([command, "--resume", place, "--quiet", "--json"], files, name):
            return
        for path, found in changed_files(run.parent / "run", files / place, [self.made_in, str(self.copy)]):
            self.wrong += 1
            for text in found[:FIRST]:
                print(f"{name}: resumed: {path}: {text}")


def read_folders(arguments):
    """Shows and reports the runs of report-*, shows and goes on with the folders `stopped`; returns the exit code.

    A folder is read, or refused with a sentence; a run that goes on must end as it did in the recording.
    """
    recording = pathlib.Path(arguments.folder).absolute()
    with tempfile.TemporaryDirectory() as copy:
        reading = Reading(arguments.program, recording, pathlib.Path(copy))
        found = [*recording.glob("runs/report-*/files/**/run.json"), *recording.glob("runs/*/files/stopped/run.json")]
        for facts in sorted(found):
            reading.folder(facts.parent)
    print(f"{len(found)} run folders, two commands each: {reading.read} commands read them, {reading.refused} refused them; "
          f"{reading.wrong} wrong")
    return 1 if reading.wrong else 0
