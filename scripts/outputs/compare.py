"""Compares two recordings and says what differs."""

import fnmatch
import json
import os
import pathlib
from collections import Counter

from outputs.differences import differences
from outputs.timeless import without_dates

FIRST = 5  # differences of one file that are printed


def files_below(folder):
    """Every file below a folder by its path in it, with dates in names hidden."""
    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = pathlib.Path(parent) / name
            found[without_dates(path.relative_to(folder).as_posix())] = path
    return found


class Comparison:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folders = [pathlib.Path(arguments.before), pathlib.Path(arguments.after)]
        self.facts = [json.loads((folder / "recording.json").read_text()) for folder in self.folders]

    def of_files(self, old, new, without=()):
        """Pairs of a file's path and its differences, for two folders."""
        before, after = files_below(old), files_below(new)
        for name in sorted(before | after):
            left_out = [*self.arguments.without, *without]
            if any(fnmatch.fnmatchcase(name.rsplit("/", 1)[-1], pattern) for pattern in left_out):
                continue
            if name not in after:
                yield name, ["gone"]
            elif name not in before:
                yield name, ["new"]
            else:
                made_in = [facts["folder"] for facts in self.facts]
                found = list(differences(name, before[name].read_bytes(), after[name].read_bytes(), made_in))
                if found:
                    yield name, found

    def print_file(self, name, found):
        limit = len(found) if self.arguments.all else FIRST
        for difference in found[:limit]:
            print(f"  {name}: {difference}")
        if len(found) > limit:
            print(f"  {name}: and {len(found) - limit} more")

    def runs(self):
        pattern = self.arguments.only
        names = [[name for name in facts["list"] if pattern is None or fnmatch.fnmatchcase(name, pattern)]
                 for facts in self.facts]
        only_before = [name for name in names[0] if name not in names[1]]
        only_after = [name for name in names[1] if name not in names[0]]
        shared = [name for name in names[0] if name in names[1]]
        differing, kinds = 0, Counter()
        for name in shared:
            # What was saved before the last checkpoint depends on where a run was interrupted.
            interrupted = any(command.startswith("@interrupt") for command in self.facts[0]["list"][name])
            found = list(self.of_files(*(folder / "runs" / name for folder in self.folders),
                                       without=["*.previous"] if interrupted else []))
            if found:
                differing += 1
                print(name)
                kinds.update({kind_of(path) for path, _ in found})
                for path, texts in found:
                    self.print_file(path, texts)
        for word, missing in (("before", only_before), ("after", only_after)):
            if missing:
                print(f"only in the recording {word}: {', '.join(missing)}")
        equal = len(shared) - differing
        print(f"{len(shared)} runs: {equal} equal to the bit, {differing} different")
        if kinds:
            print("different in " + ", ".join(f"{kind} ({count} runs)" for kind, count in kinds.most_common()))
        return differing + len(only_before) + len(only_after)

    def help(self):
        if not all(files_below(folder / "help") for folder in self.folders):
            print("help: not compared: a recording by --only has none")
            return 0
        found = list(self.of_files(*(folder / "help" for folder in self.folders)))
        for name, texts in found:
            self.print_file(f"help/{name}", texts)
        count = len(files_below(self.folders[0] / "help"))
        print(f"help: {count} texts, {'all equal' if not found else f'{len(found)} different'}")
        return len(found)

    def machines(self):
        old, new = (facts["machine"] for facts in self.facts)
        for key in ("cpu", "kernels", "blas", "torch"):
            if old.get(key) != new.get(key):
                print(f"note: another {key}, {old.get(key)} | {new.get(key)}: the last bits of numbers may differ")


def kind_of(path):
    """The file's name, or which stream of a command it is."""
    name = path.rsplit("/", 1)[-1]
    stream = {"out": "stdout", "err": "stderr", "exit": "exit codes", "command": "commands"}.get(name.rpartition(".")[2])
    return stream if stream and "/" not in path else name


def compare(arguments):
    comparison = Comparison(arguments)
    comparison.machines()
    return 1 if comparison.runs() + comparison.help() > 0 else 0
