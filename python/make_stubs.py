"""Writes _jobs.pyi, the types of the jobs, from the library's field tables: python3 make_stubs.py OUT.

Run with the built package on PYTHONPATH.
"""

from __future__ import annotations

import inspect
import pathlib
import sys

sys.path.remove(str(pathlib.Path(__file__).parent))  # has the package's sources, without the module

from bilevel import _jobs  # noqa: E402

HEAD = '''# Made by python/make_stubs.py from the library's field tables: do not edit.
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, Optional, Union

from torch import Tensor

from ._core import ProblemByName
from ._doors import Algorithm, Estimator
from ._problem import Problem
from ._result import Result

Path = Union[str, PathLike[str]]
Point = Union[Tensor, Sequence[Tensor], dict[str, Tensor]]
Progress = Union[bool, Callable[[dict[str, Any]], Any]]
'''
# Fields that take more than their words.
WIDER = {
    "method": "Union[str, Estimator]", "algorithm": "Union[str, Algorithm]",
    "methods": "Union[str, Estimator, Sequence[Union[str, Estimator]]]",
    "algorithms": "Union[str, Algorithm, Sequence[Union[str, Algorithm]]]",
    "own": "Union[Estimator, Sequence[Estimator]]", "seeds": "Union[str, Sequence[int]]",
}
FIRST_TYPES = {"problem": "Union[str, Problem, ProblemByName]", "x": "Point", "w": "Point"}
ARRAYS = {
    "clean": ("train", "train_labels", "valid", "valid_labels", "test", "test_labels"),
    "search": ("data", "labels", "test_images", "test_labels"),
}
ARRAYS["train"] = ARRAYS["search"]
ARRAYS["predict"] = ("data",)
ARRAYS["tune"] = ARRAYS["clean"]
ARRAYS["interact"] = (*ARRAYS["clean"], "train_tasks", "valid_tasks", "test_tasks")


def type_of(job: str, row: dict) -> str:
    name = row["name"]
    if name in ARRAYS.get(job, ()):
        return "Any"  # a path, or an array of numpy, torch, scipy or pandas
    if name in WIDER and not (name == "method" and job == "search"):
        return WIDER[name]
    word = row["type"]
    if row["choices"]:
        word = f"Literal[{', '.join(repr(c) for c in row['choices'])}]"
    elif word == "str" and (row["kind"] == "place" or name in ("run", "output")):
        word = "Path"
    elif word == "str":
        word = "Union[str, float]" if "number" in row["help"] or "rate" in name else "str"
    return f"Union[{word}, Sequence[{word}]]" if row["is_list"] else word


def main(out: str) -> None:
    lines = [HEAD]
    for job, table in _jobs.TABLES.items():
        rows = {row["name"]: row for row in table}
        parameters = []
        by_name = False
        function = getattr(_jobs, job)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
                by_name = True
                parameters.append("*")
            if name in FIRST_TYPES and name in _jobs.FIRST.get(job, {}):
                kind = FIRST_TYPES[name] if job != "hypergradient" or name != "problem" else "Union[Problem, ProblemByName]"
            elif name in rows:
                kind = type_of(job, rows[name])
            elif name in WIDER:
                kind = WIDER[name]
            else:
                kind = "Progress" if name == "progress" else "float" if name == "save_every" else "Path"
            required = parameter.default is parameter.empty
            parameters.append(f"{name}: {kind}" if required else f"{name}: Optional[{kind}] = ...")
        lines.append(f"def {job}(\n" + "".join(f"    {p},\n" for p in parameters) + ") -> Result: ...\n")
    lines.append("def problem(name: str, **options: Any) -> ProblemByName: ...\n")
    lines.append("TABLES: dict[str, list[dict[str, Any]]]\n")
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
