"""Asks a program to read the run folders of a recording that another version made."""

import json
import pathlib
import shutil
import tempfile

from outputs.differences import differences
from outputs.record import Recorder

FIRST = 3  # differences of one file that are printed


def first_line(text):
    return text.decode().strip().partition("\n")[0]


def read_folders(arguments):
    """Shows every run of the list's report-* and resume-* and goes on with every folder `stopped`; 1 if one ends otherwise.

    A folder is read, or refused with a sentence; a run that goes on must end as it did in the recording.
    """
    recording = pathlib.Path(arguments.folder).absolute()
    made_in = json.loads((recording / "recording.json").read_text())["folder"]
    counts, wrong = {"read": 0, "refused": 0}, 0
    with tempfile.TemporaryDirectory() as copy:
        copy = pathlib.Path(copy)
        shutil.copytree(recording / "inputs", copy / "inputs")
        recorder = Recorder(arguments.program, copy)
        recorder.machine()
        for facts in sorted([*recording.glob("runs/re*-*/files/**/run.json")]):
            run = facts.parent
            name = run.relative_to(recording / "runs")
            files = copy / "runs" / name.parts[0] / "files"
            if not files.exists():
                shutil.copytree(recording / "runs" / name.parts[0] / "files", files)
            place = pathlib.Path(*name.parts[2:]).as_posix()
            command = json.loads(facts.read_text())["command"]
            steps = [["show", place, "--json"], ["report", place, "--json"]]
            if run.name == "stopped":
                steps.append([command, "--resume", place, "--quiet", "--json"])
            for words in steps:
                code, out, err = recorder.call(words, files)
                if code != 0:
                    counts["refused"] += 1
                    print(f"{name}: bilevel {' '.join(words)}: exit code {code}: {first_line(err)}")
                    wrong += 0 if code in (1, 2) and err.strip() else 1
                    continue
                counts["read"] += 1
                if words[0] != command:
                    continue
                for path in sorted(path for path in (run.parent / "run").iterdir() if path.is_file()):
                    resumed = files / place / path.name
                    if path.name in ("run.json", "report.html"):
                        continue
                    found = list(differences(path.name, path.read_bytes(), resumed.read_bytes(), [made_in, str(copy)])
                                 ) if resumed.exists() else ["not there"]
                    found = [text for text in found if not text.startswith(".folder: ")]
                    wrong += bool(found)
                    for text in found[:FIRST]:
                        print(f"{name}: resumed: {path.name}: {text}")
    print(f"{counts['read'] + counts['refused']} commands on run folders of {recording}: {counts['read']} read them, "
          f"{counts['refused']} refused them, {wrong} wrong")
    return 1 if wrong else 0
