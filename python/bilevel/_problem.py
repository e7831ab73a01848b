"""Problems made of two functions, or of a module and two losses."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _core


def _name_of(level: str, function: Callable[..., Any]) -> str:
    """inner (my_loss, train.py:12)"""
    called = getattr(function, "__qualname__", None) or type(function).__qualname__
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f", {code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno}" if code is not None else ""
    return f"{level} ({called.rsplit('.', 1)[-1]}{place})"


def _arguments_of(level: str, function: Callable[..., Any], fewest: int) -> int:
    if not callable(function):
        raise TypeError(f"{level} must be a function, not {type(function).__name__}")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that does not say
        return fewest
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return fewest + 1
    required = [p for p in positional if p.default is p.empty]
    if len(required) > fewest + 1 or len(positional) < fewest:
        raise TypeError(
            f"{_name_of(level, function)} must take two arguments (x and w; of a module's loss the module and x) and, if "
            f"it wants one, a batch: it takes {len(positional)}"
        )
    return min(len(positional), fewest + 1) if len(required) > fewest else fewest


def _rows(level: str, data: Any) -> int | None:
    """How many examples tensors of data hold."""
    tensors = data if isinstance(data, tuple) else (data,)
    counts = {len(t) for t in tensors}
    if len(counts) != 1:
        raise ValueError(f"{level}_data: the tensors have {', '.join(map(str, sorted(counts)))} rows: they must agree")
    return counts.pop()


def _checked_data(level: str, loss: Callable[..., Any], takes_batch: bool, data: Any, samples: int | None) -> tuple[Any, int]:
    data = tuple(data) if isinstance(data, list) else data
    wrong = TypeError(f"{level}_data must be a tensor, a tuple of tensors, or a function from a batch to data")
    if isinstance(data, (torch.Tensor, tuple)):
        if isinstance(data, tuple) and not all(isinstance(t, torch.Tensor) for t in data):
            raise wrong
        rows = _rows(level, data)
        if samples is not None and samples != rows:
            raise ValueError(f"{level}_samples = {samples}, but {level}_data has {rows} rows")
        samples = rows
    elif data is not None and not callable(data):
        raise wrong
    if data is not None and not takes_batch:
        raise TypeError(f"{_name_of(level, loss)} takes no batch, but {level}_data is given: give it a third argument")
    samples = 1 if samples is None else samples
    if samples < 1:
        raise ValueError(f"{level}_samples = {samples}: must be at least 1")
    return data, samples


def _data_of(data: Any, batch: Any) -> Any:
    """The third argument of a loss."""
    if data is None:
        return batch
    if isinstance(data, torch.Tensor):
        return batch.rows(data)
    return tuple(batch.rows(t) for t in data) if isinstance(data, tuple) else data(batch)


class Problem:
    """Two losses of x and w, as functions of torch tensors.

    outer(x, w), inner(x, w): scalars. A third argument gets the batch: its rows of `outer_data` or `inner_data` where
        those are tensors, what they return where they are functions from a Batch, else the Batch itself (index, seed).
    x, w: where to start, for functions that are called without; tensors of any shape, or lists or dicts of tensors,
        which the losses get in the same form.
    inner_samples, outer_samples: how many examples there are, where data does not tell.
    inner_rate, inner_steps: defaults for the inner loop; without inner_rate it is 1 / the largest curvature at the start.
    convex: the inner problem has one solution, so that f(x, w*(x)) is well defined (for compare).
    inner_uses_x: False where the inner loss has no x in it on purpose.
    metrics(x, w): a dict of numbers for the records of a run. project(x): x brought back to where it may be.

    Nothing may be written to x and w, and nothing random may be drawn but from the batch's seed: the losses are
    evaluated again at the same place.
    """

    def __init__(
        self,
        outer: Callable[..., torch.Tensor],
        inner: Callable[..., torch.Tensor],
        *,
        x: Any = None,
        w: Any = None,
        outer_data: Any = None,
        inner_data: Any = None,
        outer_samples: int | None = None,
        inner_samples: int | None = None,
        inner_rate: float | None = None,
        inner_steps: int = 100,
        convex: bool = False,
        inner_uses_x: bool = True,
        metrics: Callable[..., dict[str, float]] | None = None,
        project: Callable[[Any], Any] | None = None,
        name: str = "own problem",
    ) -> None:
        self._set_up(
            outer, inner, outer, inner, x, w, outer_data, inner_data, outer_samples, inner_samples, inner_rate,
            inner_steps, convex, inner_uses_x, metrics, project, name,
        )

    def _set_up(
        self, outer: Any, inner: Any, outer_named: Any, inner_named: Any, x: Any, w: Any, outer_data: Any,
        inner_data: Any, outer_samples: Any, inner_samples: Any, inner_rate: Any, inner_steps: Any, convex: Any,
        inner_uses_x: Any, metrics: Any, project: Any, name: Any,
    ) -> None:
        """`outer` and `inner` are called, and `*_named` are what their user calls them."""
        if inner_rate is not None and not inner_rate > 0:
            raise ValueError(f"inner_rate = {inner_rate}: must be above 0")
        self.x, self.w, self.name, self.convex = x, w, name, convex
        self.inner_rate, self.inner_steps = inner_rate, inner_steps

        def core(level: str, loss: Any, named: Any, data: Any, samples: Any) -> Any:
            takes_batch = _arguments_of(level, loss, 2) > 2
            data, samples = _checked_data(level, named, takes_batch, data, samples)
            return _core._Loss(loss, _name_of(level, named), takes_batch, data, samples)

        self._functions = _core._Functions(
            core("inner", inner, inner_named, inner_data, inner_samples),
            core("outer", outer, outer_named, outer_data, outer_samples),
            metrics, project, inner_uses_x,
        )

    def __repr__(self) -> str:
        return f"bilevel.{type(self).__name__}('{self.name}')"


# Modules whose result is random while they are trained.
_RANDOM = (torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU)


class ModuleProblem(Problem):
    """A torch.nn.Module with two losses: w is its parameters, x whatever the losses make of it.

        net = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))

        def inner(net, x):  # exp(x) is a weight decay per layer
            decay = sum(x[i].exp() * p.square().sum() for i, p in enumerate(net.parameters()))
            return (net(train) - noisy).square().mean() + decay

        problem = bilevel.ModuleProblem(net, outer=lambda net, x: (net(valid) - clean).square().mean(),
                                        inner=inner, x=torch.full((4,), -8.0))
        result = bilevel.solve(problem)
        problem.write(result.w)  # into the network

    While a loss runs, the module's parameters stand for w, in its graph, and buffers (running statistics) are copies;
    the module itself is written to by `write` alone. Dropout draws from the batch's seed. Parameters that require no
    gradient are constants.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        outer: Callable[..., torch.Tensor],
        inner: Callable[..., torch.Tensor],
        *,
        x: Any = None,
        outer_data: Any = None,
        inner_data: Any = None,
        outer_samples: int | None = None,
        inner_samples: int | None = None,
        inner_rate: float | None = None,
        inner_steps: int = 100,
        convex: bool = False,
        inner_uses_x: bool = True,
        metrics: Callable[..., dict[str, float]] | None = None,
        project: Callable[[Any], Any] | None = None,
        name: str = "own module",
    ) -> None:
        self.module = module
        self._places: list[tuple[list[tuple[dict[str, Any], str]], torch.Tensor]] = []
        seen: dict[int, list[tuple[dict[str, Any], str]]] = {}
        names = {}
        for prefix, part in module.named_modules():
            for key, parameter in part._parameters.items():
                if parameter is None or not parameter.requires_grad:
                    continue
                if id(parameter) in seen:  # tied weights are one part of w
                    seen[id(parameter)].append((part._parameters, key))
                    continue
                seen[id(parameter)] = [(part._parameters, key)]
                names[f"{prefix}.{key}" if prefix else key] = parameter
                self._places.append((seen[id(parameter)], parameter))
        if not self._places:
            raise ValueError("the module has no parameter that requires a gradient")
        self._buffers = [
            (part._buffers, key) for part in module.modules() for key, b in part._buffers.items() if b is not None
        ]
        self._recurrent = [m for m in module.modules() if isinstance(m, torch.nn.RNNBase)]
        self._random = [m for m in module.modules() if isinstance(m, _RANDOM) or (
            isinstance(m, (torch.nn.RNNBase, torch.nn.MultiheadAttention)) and m.dropout > 0)]
        self._names = list(names)  # of w's parts, in the order of _places
        w = {key: p.detach().clone() for key, p in names.items()}

        def with_module(level: str, loss: Callable[..., Any], data: Any) -> Callable[..., Any]:
            takes_batch = _arguments_of(level, loss, 2) > 2

            def called(x: Any, w: dict[str, torch.Tensor], batch: Any) -> Any:
                with self._standing_for(w, batch.seed):
                    return loss(module, x, _data_of(data, batch)) if takes_batch else loss(module, x)

            return called

        data = {"outer": outer_data, "inner": inner_data}
        samples = {"outer": outer_samples, "inner": inner_samples}
        for level, loss in (("outer", outer), ("inner", inner)):
            data[level], samples[level] = _checked_data(level, loss, _arguments_of(level, loss, 2) > 2, data[level], samples[level])
        self._set_up(
            with_module("outer", outer, data["outer"]), with_module("inner", inner, data["inner"]), outer, inner, x, w,
            None, None, samples["outer"], samples["inner"], inner_rate, inner_steps, convex, inner_uses_x, metrics,
            project, name,
        )

    @contextlib.contextmanager
    def _standing_for(self, w: dict[str, torch.Tensor], seed: int) -> Iterator[None]:
        buffers = [(held, key, held[key]) for held, key in self._buffers]
        random = any(m.training for m in self._random)
        fork = contextlib.ExitStack()
        if random:  # the process's own generators go on as if nothing had been drawn
            device = self._places[0][1].device
            fork.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
            torch.manual_seed(seed)
        try:
            for name, (places, parameter) in zip(self._names, self._places):
                tensor = w.get(name) if isinstance(w, dict) else None
                if tensor is None or tensor.shape != parameter.shape or len(w) != len(self._names):
                    self._refuse(w)
                for held, key in places:
                    held[key] = tensor
            for held, key, buffer in buffers:
                held[key] = buffer.clone()
            self._tell_recurrent()
            yield
        finally:
            for places, parameter in self._places:
                for held, key in places:
                    held[key] = parameter
            for held, key, buffer in buffers:
                held[key] = buffer
            self._tell_recurrent()
            fork.close()

    def _tell_recurrent(self) -> None:
        """LSTM, GRU and RNN compute with a list of their weights that only assignment to the module refreshes."""
        for part in self._recurrent:
            part._flat_weights = [getattr(part, name, None) for name in part._flat_weights_names]

    def _refuse(self, w: Any) -> None:
        """Raises where w has not the names and shapes of the module's parameters."""
        if not isinstance(w, dict):
            raise TypeError(f"w must be a dict of tensors by the names of the module's parameters, not {type(w).__name__}")
        for name in w:
            if name not in self._names:
                raise ValueError(f"w[{name!r}]: the module has no parameter of this name that requires a gradient")
        for name, (_, parameter) in zip(self._names, self._places):
            if name not in w:
                raise ValueError(f"w[{name!r}] is missing: it is a parameter of the module")
            if w[name].shape != parameter.shape:
                raise ValueError(f"w[{name!r}] has shape {tuple(w[name].shape)}, but the parameter has {tuple(parameter.shape)}")

    def write(self, w: dict[str, torch.Tensor]) -> None:
        """Copies w, as solve() gives it back, into the module's parameters, by their names."""
        self._refuse(w)
        with torch.no_grad():
            for name, (_, parameter) in zip(self._names, self._places):
                parameter.copy_(w[name])
