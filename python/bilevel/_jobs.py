"""The jobs of the library as functions. Their keywords, defaults and help come from the library's field tables."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import torch

from . import _core, _data
from ._doors import Algorithm, Estimator
from ._listener import Listener
from ._problem import Problem
from ._result import Interrupted, Result, RunFailed

TABLES = _core.tables()

# What a function takes beside its table's fields: where a run is kept, and who hears of it.
PLACE = {
    "out": "folder to keep the run in; None = nothing is kept",
    "resume": "resume the run in this folder; the results are the same bits",
    "save_every": "seconds between two checkpoints; 10 by default",
}
PROGRESS = "True: a line on stderr; a function: is called with a dict of job, step, total, loss and text"
KEEPS_RUN = ("solve", "compare", "clean", "tune", "interact", "search", "train", "learn")
ON_PROBLEMS = ("solve", "check", "compare", "diagnose")


def _tensors(value: Any) -> Any:
    """Numbers and arrays of a point as tensors; lists and dicts are looked into."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, dict):
        return {key: _tensors(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in value):
        return type(value)(_tensors(one) for one in value)
    return torch.as_tensor(value)


def hypergradient(problem: Any, x: Any = None, w: Any = None, method: Any = "cg", **options: Any) -> Result:
    if isinstance(problem, Problem):
        x = problem.x if x is None else x
        w = problem.w if w is None else w
        problem = problem._functions
    elif not isinstance(problem, _core.ProblemByName):
        raise TypeError(f"problem must be a bilevel.Problem or bilevel.problem(NAME), not {type(problem).__name__}")
    return Result("hypergradient", _core.hypergradient(problem, _tensors(x), _tensors(w), method, options))


def problem(name: str, **options: Any) -> Any:
    """A problem that the library knows by name, such as "ridge"; problems() lists them."""
    return _core.problem(problem=name, **options)


def _take_own(job: str, keywords: dict[str, Any]) -> list[Any]:
    """Estimators and algorithms that were given as objects, out of the keywords."""
    def apart(name: str, kind: type) -> list[Any]:
        value = keywords.get(name)
        several = list(value) if isinstance(value, (list, tuple)) else [value]
        own = [one for one in several if isinstance(one, kind)]
        if own:
            rest = [one for one in several if not isinstance(one, kind)]
            keywords.pop(name)
            if rest:
                keywords[name] = rest
        return own

    if job == "check":
        return apart("methods", Estimator)
    if job == "diagnose":
        return apart("own", Estimator)
    if job == "compare":
        return apart("algorithms", Algorithm)
    if job == "solve":
        own = apart("algorithm", Algorithm)
        return own if own else apart("method", Estimator)
    return []


def _run(job: str, keywords: dict[str, Any], x: Any = None, w: Any = None) -> Result:
    keywords = {name: value for name, value in keywords.items() if value is not None}
    place = {name: keywords.pop(name) for name in PLACE if job in KEEPS_RUN and name in keywords}
    listener = Listener(keywords.pop("progress", None))
    call: dict[str, Any] = {
        "keywords": keywords, "place": place, "listener": listener, "data": None, "problem": None, "x": None, "w": None,
        "inner_rate": None, "inner_steps": 100, "problem_name": "", "convex": False, "own": _take_own(job, keywords),
    }
    if job in ON_PROBLEMS:
        _take_problem(job, call, keywords, x, w)
    classes, in_memory = None, False
    if job in ("clean", "tune"):
        call["data"] = _data.examples(keywords)
    elif job == "interact":
        call["data"] = _data.tasks(keywords)
    elif job in ("search", "train"):
        call["data"] = _data.images(keywords)
    if call["data"] is not None:
        classes = call["data"].pop("classes", None) if job != "interact" else None
    try:
        with contextlib.ExitStack() as files, listener.on_interrupt():
            if job == "predict" and keywords.get("data") is not None and not _data.is_path(keywords["data"]):
                if hasattr(keywords["data"], "to_csv"):  # names may be numbers, which a reader would not take for names
                    keywords.update({"header": "yes", "separator": "comma", "decimal": "point", **keywords})
                keywords["data"] = files.enter_context(_data.as_file(keywords["data"]))
                in_memory = True
            values = _core.jobs[job](call)
    finally:
        listener.close()
    if in_memory:
        values.pop("data")  # a file that is gone
    if classes is not None:
        values["labels"] = classes
    result = Result(job, values)
    if values["status"] == "interrupted":
        saved = f"; state saved. Resume with resume={values['folder']!r}" if values["folder"] else ""
        raise Interrupted(f"{job}() was stopped{saved}", result)
    if values["status"] == "failed":
        raise RunFailed(values.get("message", f"{job}() ended badly"), result)
    return result


def _take_problem(job: str, call: dict[str, Any], keywords: dict[str, Any], x: Any, w: Any) -> None:
    given = keywords.get("problem")
    if isinstance(given, _core.ProblemByName):  # made again by its name and options
        for name, value in given.options.items():
            if name == "problem" or name not in keywords:
                keywords[name] = value
        given = None
    if isinstance(given, Problem):
        keywords.pop("problem")
        call.update(
            problem=given._functions, x=_tensors(given.x if x is None else x), w=_tensors(given.w if w is None else w),
            inner_rate=keywords.get("inner_rate", given.inner_rate), inner_steps=given.inner_steps,
            problem_name=given.name, convex=given.convex,
        )
        return
    if x is not None or w is not None:
        raise TypeError(f"{job}(): a problem known by name starts at its own x and w")


def _row_help(row: dict[str, Any]) -> str:
    more = []
    if row["choices"]:
        more.append("one of " + ", ".join(row["choices"]))
    if row["range"]:
        more.append(row["range"])
    if row["owner"]:
        more.append(f"of {row['owner']} alone")
    text = f"    {row['name']}: {row['help']}"
    return f"{text} ({'; '.join(more)})" if more else text


def _document(function: Callable[..., Any], job: str, summary: str, first: dict[str, Any]) -> Callable[..., Any]:
    """A signature and a docstring from the job's table; `first` are parameters that may be given by position."""
    rows = [row for row in TABLES[job] if row["name"] not in first]
    lines = [summary, ""]
    group = None
    for row in TABLES[job]:
        if row["group"] != group:
            group = row["group"]
            lines += ["", f"{group}:"] if group else [""]
        lines.append(_row_help(row))
    extra = dict(PLACE) if job in KEEPS_RUN else {}
    if job == "diagnose":
        extra["own"] = "a bilevel.Estimator or several, which get rows beside the library's"
    if job != "hypergradient":
        extra["progress"] = PROGRESS
    if extra:
        lines += ["", "run:", *(f"    {name}: {text}" for name, text in extra.items())]
    function.__doc__ = "\n".join(lines)
    function.__name__ = function.__qualname__ = job
    by_place = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=d) for n, d in first.items()]
    by_name = [inspect.Parameter(r["name"], inspect.Parameter.KEYWORD_ONLY, default=r["default"]) for r in rows]
    by_name += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in extra]
    function.__signature__ = inspect.Signature([*by_place, *by_name])  # type: ignore[attr-defined]
    return function


SUMMARIES = {
    "hypergradient": "One estimate of the derivative of f(x, w(x)) in x, with its status, counts and, if asked for, a bound.",
    "solve": "Runs one algorithm on a problem. Gives x, w, outer_loss, counts and the history.",
    "check": "Compares hypergradient estimators with the exact answer on a problem.",
    "compare": "Runs several algorithms on one problem with the same budget.",
    "diagnose": "Measures a problem's inner curvature and what each estimator would cost, and recommends one.",
    "clean": "Finds wrong labels in a training set. Arrays or paths: train, train_labels and so on.",
    "tune": "Finds one regulariser per feature of softmax regression. Arrays or paths: train, train_labels and so on.",
    "interact": "Learns how strongly tasks should influence each other. Arrays or paths: train, train_labels, train_tasks.",
    "search": "Searches for the architecture of an image network: a set's name, a path, or an array of bytes with labels.",
    "train": "Trains a cell's network from scratch and tests it, on images as search() takes them.",
    "learn": "Learns across few-shot tasks.",
    "adapt": "Uses what learn() learned on a few images of your own.",
    "predict": "Uses the model of a finished run, or of an exported file, on new data: an array, a frame or a path.",
    "export": "Writes the model of a finished run for other programs: npz, torchscript or onnx.",
    "count": "Counts parameters and multiply-adds of cells.",
    "query": "Looks up the accuracies of trained cells in the tables of NAS-Bench-201 and NAS-Bench-101.",
}

# Parameters that may be given by position, in order.
FIRST: dict[str, dict[str, Any]] = {
    "hypergradient": {"problem": inspect.Parameter.empty, "x": None, "w": None, "method": "cg"},
    "solve": {"problem": None, "x": None, "w": None, "algorithm": "aid-cg"},
    "check": {"problem": None, "x": None, "w": None},
    "compare": {"problem": None, "x": None, "w": None},
    "diagnose": {"problem": None, "x": None, "w": None},
    "clean": {"train": None, "train_labels": None},
    "tune": {"train": None, "train_labels": None},
    "interact": {"train": None, "train_labels": None},
    "search": {"data": None, "labels": None},
    "train": {"data": None, "labels": None},
    "predict": {"run": None, "data": None},
    "export": {"run": None, "format": None},
}


def _job(job: str) -> Callable[..., Result]:
    first = FIRST.get(job, {})

    def run(*args: Any, **keywords: Any) -> Result:
        if len(args) > len(first):
            raise TypeError(f"{job}() takes {len(first)} positional arguments, but {len(args)} were given")
        for name, value in zip(first, args):
            if name in keywords:
                raise TypeError(f"{job}() got multiple values for argument '{name}'")
            keywords[name] = value
        x, w = (keywords.pop("x", None), keywords.pop("w", None)) if job in ON_PROBLEMS else (None, None)
        return _run(job, keywords, x, w)

    return _document(run, job, SUMMARIES[job], first)


_document(hypergradient, "hypergradient", SUMMARIES["hypergradient"], FIRST["hypergradient"])
solve = _job("solve")
check = _job("check")
compare = _job("compare")
diagnose = _job("diagnose")
clean = _job("clean")
tune = _job("tune")
interact = _job("interact")
search = _job("search")
train = _job("train")
learn = _job("learn")
adapt = _job("adapt")
predict = _job("predict")
export = _job("export")
count = _job("count")
query = _job("query")
