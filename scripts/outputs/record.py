"""Runs the list of commands and stores what each prints and writes.

A recording is a folder:
    recording.json     program, machine, seconds, and the list as it was
    inputs/            the files that the commands read
    help/COMMAND.txt   what `bilevel COMMAND --help` prints
    runs/NAME/         N.command, N.exit, N.out and N.err of the N-th command, and files/, where they ran
"""

import datetime
import fnmatch
import itertools
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

from outputs.inputs import write_inputs

LONGEST = 60  # seconds that one command may take


class ListError(Exception):
    pass


def read_list(path):
    """Names of runs with their commands, each a list of words; `$word` stands for each word of the line `word = ...`."""
    words, runs = {}, {}
    for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        definition = re.fullmatch(r"([a-z]+) = (.*)", line)
        if definition:
            words[definition[1]] = definition[2].split()
            continue
        parts = re.fullmatch(r"([a-z0-9$-]+): (.*)", line)
        if not parts:
            raise ListError(f"{path}, line {number}: expected `NAME: COMMAND` or `word = VALUES`, got: {line}")
        used = [word for word in words if re.search(rf"\${word}\b", parts[1])]
        for values in itertools.product(*(words[word] for word in used)):
            name, command = parts[1], parts[2]
            for word, value in zip(used, values):
                name = re.sub(rf"\${word}\b", value, name)
                command = re.sub(rf"\${word}\b", value, command)
            if "$" in name + command:
                raise ListError(f"{path}, line {number}: a word that no line before it defines, in: {name}: {command}")
            runs.setdefault(name, []).append(shlex.split(command))
    return runs


def surroundings():
    """The same for every recording: no variable of the user's changes what a command does."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LD_LIBRARY_PATH")}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC", "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


class Recorder:
    def __init__(self, program, folder):
        self.program = os.path.abspath(program)
        self.folder = pathlib.Path(folder).absolute()
        self.environment = surroundings()

    def call(self, words, place, watched=None):
        """Exit code, stdout and stderr; a process that writes into `watched` gets SIGINT after its second record."""
        process = subprocess.Popen([self.program, *words], cwd=place, env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if watched is not None:
            metrics = place / watched / "metrics.jsonl"
            while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 2):
                time.sleep(0.005)
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return f"none: killed after {LONGEST} seconds", out, err
        return process.returncode, out, err

    def machine(self):
        """Facts of the machine, as a first run states them; later ones start on the same kernels at once."""
        place = self.folder / "machine"
        place.mkdir()
        code, _, err = self.call(shlex.split("solve --problem toy --iterations 1 --threads 1 --quiet --out run"), place)
        if code != 0:
            raise SystemExit(f"compare-outputs: {self.program} cannot solve the toy problem: {err.decode()}")
        facts = json.loads((place / "run/run.json").read_text())
        shutil.rmtree(place)
        if facts["machine"].get("kernels"):
            self.environment["OPENBLAS_CORETYPE"] = facts["machine"]["kernels"]
        return {"version": facts.get("version")} | facts["machine"]

    def step(self, words, place, files, number):
        """One command, or one of the words that begin with @ (see the list)."""
        (place / f"{number}.command").write_text(shlex.join(words) + "\n")
        if words[0] in ("@stop", "@copy") and not (files / words[1] / "run.json").exists():
            (place / f"{number}.exit").write_text(f"none: there is no run in {words[1]}\n")
        elif words[0] == "@stop":
            stop(files / words[1])
        elif words[0] == "@copy":
            shutil.copytree(files / words[1], files / words[2])
        elif words[0] == "@interrupt":
            # Where it stopped is chance: only the exit code is the same every time.
            code, _, _ = self.call(words[2:], files, watched=words[1])
            (place / f"{number}.exit").write_text(f"{code}\n")
        else:
            code, out, err = self.call(words, files)
            (place / f"{number}.exit").write_text(f"{code}\n")
            (place / f"{number}.out").write_bytes(out)
            (place / f"{number}.err").write_bytes(err)

    def run(self, name, steps):
        files = self.folder / "runs" / name / "files"
        files.mkdir(parents=True)
        for number, words in enumerate(steps, 1):
            self.step(words, files.parent, files, number)

    def help(self, words=()):
        """Stores the help of a command and of all commands below it."""
        _, out, err = self.call([*words, "--help"], self.folder)
        (self.folder / "help" / ("-".join(["bilevel", *words]) + ".txt")).write_bytes(out + err)
        below = out.decode().partition("\nSubcommands:\n")[2].partition("\n\n")[0]
        for name in re.findall(r"^  ([a-z][a-z0-9-]*) ", below, re.MULTILINE):
            self.help([*words, name])


def stop(run):
    """Leaves a finished run as a process that was killed before its last checkpoint leaves it."""
    facts = json.loads((run / "run.json").read_text())
    facts["status"] = "running"
    (run / "run.json").write_text(json.dumps(facts, indent=2))
    if (run / "checkpoint.previous").exists():
        (run / "checkpoint.previous").replace(run / "checkpoint")


def record(program, folder, list_path, only):
    folder = pathlib.Path(folder)
    runs = read_list(list_path)
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"compare-outputs: {folder} is not empty: name a new folder")
    wanted = {name: steps for name, steps in runs.items() if only is None or fnmatch.fnmatchcase(name, only)}
    if not wanted:
        raise SystemExit(f"compare-outputs: --only {only}: no run of {list_path} has such a name")
    images = any("fashion-mnist" in words for steps in wanted.values() for words in steps)
    if images and not pathlib.Path("/usr/share/datasets/fashion-mnist").is_dir():
        raise SystemExit("compare-outputs: some runs need Fashion-MNIST: install the package dataset-fashion-mnist")
    begin = time.monotonic()
    for part in ("inputs", "help", "runs"):
        (folder / part).mkdir(parents=True)
    write_inputs(folder / "inputs")
    recorder = Recorder(program, folder)
    machine = recorder.machine()
    if only is None:
        recorder.help()
    slowest = {}
    for number, (name, steps) in enumerate(wanted.items(), 1):
        started = time.monotonic()
        recorder.run(name, steps)
        slowest[name] = time.monotonic() - started
        if sys.stderr.isatty():
            print(f"\r\x1b[K{number}/{len(wanted)} {name}", end="", file=sys.stderr)
    seconds = time.monotonic() - begin
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = usage.ru_utime + usage.ru_stime
    facts = {"program": recorder.program, "folder": str(recorder.folder), "machine": machine, "date": datetime.datetime.now().isoformat(timespec="seconds"),
             "seconds": round(seconds, 1), "processor_seconds": round(processor, 1), "runs": len(wanted),
             "commands": sum(not words[0] in ("@stop", "@copy") for steps in wanted.values() for words in steps),
             "seconds_of_runs": {name: round(took, 2) for name, took in sorted(slowest.items(), key=lambda item: -item[1])},
             "list": {name: [shlex.join(words) for words in steps] for name, steps in wanted.items()}}
    (folder / "recording.json").write_text(json.dumps(facts, indent=1) + "\n")
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print(f"{facts['runs']} runs of {facts['commands']} commands recorded in {folder}, in {seconds:.0f} s "
          f"({processor:.0f} s of processor time)")
