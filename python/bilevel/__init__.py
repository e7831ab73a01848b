"""Gradient-based bilevel optimisation: min over x of f(x, w*(x)) with w*(x) = argmin over w of g(x, w).

    import bilevel, torch

    problem = bilevel.Problem(outer=lambda x, w: (w - 1).square().sum(),
                              inner=lambda x, w: (w - x).square().sum() + 0.1 * w.square().sum())
    h = bilevel.hypergradient(problem, x=torch.zeros(3), w=torch.zeros(3), method="cg")
    h.value, h.status, h.counts

`solve` runs whole algorithms; `check`, `diagnose` and `compare` look at estimators and algorithms on a problem;
`clean`, `tune`, `interact`, `search`, `train`, `learn` and `adapt` are jobs on data; `predict` and `export` use the model
of a run that was kept. `estimators()`, `algorithms()` and
`problems()` list what is known by name.
"""

from __future__ import annotations

from . import _kernels  # first: OpenBLAS reads its variable while torch loads it

_kernels.choose()

import torch as _torch  # noqa: E402  the module is linked against its libraries

from ._core import (  # noqa: E402
    Batch,
    NotFiniteError,
    OptionError,
    RunError,
    __version__,
    algorithms,
    estimators,
    problems,
)
from ._doors import Algorithm, Estimator  # noqa: E402
from ._jobs import (  # noqa: E402
    adapt,
    check,
    clean,
    compare,
    count,
    diagnose,
    export,
    hypergradient,
    interact,
    learn,
    predict,
    problem,
    query,
    search,
    solve,
    train,
    tune,
)
from ._problem import ModuleProblem, Problem  # noqa: E402
from ._result import BilevelWarning, Interrupted, Result, RunFailed  # noqa: E402

__all__ = [
    "Algorithm", "Batch", "BilevelWarning", "Estimator", "Interrupted", "ModuleProblem", "NotFiniteError",
    "OptionError", "Problem", "Result", "RunError", "RunFailed", "__version__", "adapt", "algorithms", "check",
    "clean", "compare", "count", "diagnose", "estimators", "export", "hypergradient", "interact", "learn", "predict",
    "problem", "problems", "query", "search", "solve", "train", "tune",
]
