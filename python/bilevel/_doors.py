"""User-defined estimators and algorithms. Both see x and w as flat vectors."""

from __future__ import annotations

from typing import Any


class Estimator:
    """A hypergradient estimator: a subclass has `name`, `implicit` and `compute`.

        class OneDescent(bilevel.Estimator):
            name = "one-descent"

            def compute(self, oracle, request):
                f = oracle.outer_gradients(request.x, request.w, request.outer_batch)
                g = oracle.linearize(request.x, request.w)
                v = f.w * (f.w.dot(f.w) / f.w.dot(g.hessian(f.w)))
                return f.x - g.cross(v)

    `compute` gives the hypergradient, or a dict with `value` and, where there is one, `status`, `solution` and
    `iterations`. `request` has x, w (after the inner steps), outer_batch, cross_batch, hessian_batches and warm_start.
    """

    name: str = "own"
    implicit: bool = True  # an estimate of the implicit hypergradient, not of the derivative through the steps taken

    def compute(self, oracle: Any, request: Any) -> Any:
        raise NotImplementedError


class Algorithm:
    """A whole-step rule: a subclass has `name` and `step`.

        class Alternating(bilevel.Algorithm):
            name = "alternating"
            inner_rate = 0.1

            def step(self, oracle, state, batches):
                g = oracle.linearize(state.x, state.w, batches.inner("step"))
                f = oracle.outer_gradients(state.x, state.w, batches.outer("loss"))
                direction = f.x - g.cross(f.w)
                state.w = state.w - self.inner_rate * g.gradient()
                state.step_outer(direction)
                return direction

    What it remembers from one iteration to the next is a tensor in the state, state["momentum"], so that a run can be
    resumed. An attribute `inner_rate` is set by `compare` to the rates that it tries, and by solve(inner_rate=...), both in a
    copy; other options of its own are given to it when it is made.
    """

    name: str = "own"

    def step(self, oracle: Any, state: Any, batches: Any) -> Any:
        raise NotImplementedError
