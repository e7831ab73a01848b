"""The losses of hypertorch's examples, written from their formulas: closed-form hypergradients to 1e-6, and beside hypertorch
itself where HYPERTORCH names the folder that holds hypergrad/ (github.com/prolearner/hypertorch)."""

from __future__ import annotations

import os
import sys
import unittest

import bilevel  # before torch: it chooses the BLAS kernels
import torch
import torch.nn.functional as F

from closed_forms import Quadratic, Ridge, relative

DOUBLE = {"dtype": torch.double}


class Example:
    """Two losses of x and a vector w, with the second derivatives of g written out."""

    rate = 0.5  # of gradient descent on g

    def newton(self, steps: int = 30) -> torch.Tensor:
        """w*: the Hessian is positive definite."""
        w = self.w
        for _ in range(steps):
            leaf = w.detach().requires_grad_(True)
            gradient = torch.autograd.grad(self.inner(self.x, leaf), leaf)[0]
            w = w - torch.linalg.solve(self.hessian(w), gradient)
        return w

    def exact(self, w: torch.Tensor) -> torch.Tensor:
        """df/dx - C H^-1 df/dw, dense."""
        return -self.cross(w) @ torch.linalg.solve(self.hessian(w), self.outer_gradient(w))


class Logistic(Example):
    """logistic_regression.ipynb: g = mean log-loss + w' diag(x) w / 2, one regulariser per feature; f = log-loss."""

    def __init__(self, n: int = 200, p: int = 20) -> None:
        generator = torch.Generator().manual_seed(1)
        w = torch.randn(p, generator=generator, **DOUBLE)
        self.X, self.V = (torch.randn(n, p, generator=generator, **DOUBLE) for _ in range(2))
        self.y, self.u = ((rows @ w + 0.1 * torch.randn(n, generator=generator, **DOUBLE) > 0).double() for rows in (self.X, self.V))
        self.x, self.w = torch.ones(p, **DOUBLE), torch.zeros(p, **DOUBLE)

    def inner(self, x, w):
        return F.binary_cross_entropy_with_logits(self.X @ w, self.y) + 0.5 * (x * w.square()).sum()

    def outer(self, x, w):
        return F.binary_cross_entropy_with_logits(self.V @ w, self.u)

    def hessian(self, w):
        p = (self.X @ w).sigmoid()
        return self.X.T @ ((p * (1 - p))[:, None] * self.X) / len(p) + torch.diag(self.x)

    def cross(self, w):
        return torch.diag(w)

    def outer_gradient(self, w):
        return self.V.T @ ((self.V @ w).sigmoid() - self.u) / len(self.u)


class Softmax(Example):
    """g = sum_i r_i(x) CE_i + regulariser, f = mean cross entropy, on classes by softmax."""

    def __init__(self, n: int = 60, p: int = 5, classes: int = 3) -> None:
        generator = torch.Generator().manual_seed(2)
        self.X, self.V = (torch.randn(n, p, generator=generator, **DOUBLE) for _ in range(2))
        W = torch.randn(p, classes, generator=generator, **DOUBLE)
        self.y, self.u = ((rows @ W + torch.randn(n, classes, generator=generator, **DOUBLE)).argmax(1) for rows in (self.X, self.V))
        self.shape, self.w = (p, classes), torch.zeros(p * classes, **DOUBLE)

    def weighted_hessian(self, w, r):
        """sum_i r_i (diag(q_i) - q_i q_i') (x) X_i X_i'"""
        q = (self.X @ w.view(self.shape)).softmax(1)
        curvature = torch.diag_embed(q) - q[:, :, None] * q[:, None, :]
        return torch.einsum("i,icd,ij,ik->jckd", r, curvature, self.X, self.X).reshape(w.numel(), w.numel())

    def example_gradients(self, w):
        """Of CE_i, one row each."""
        q = (self.X @ w.view(self.shape)).softmax(1) - F.one_hot(self.y, self.shape[1])
        return (self.X[:, :, None] * q[:, None, :]).reshape(len(self.y), -1)

    def outer(self, x, w):
        return F.cross_entropy(self.V @ w.view(self.shape), self.u)

    def outer_gradient(self, w):
        q = (self.V @ w.view(self.shape)).softmax(1) - F.one_hot(self.u, self.shape[1])
        return (self.V.T @ q / len(self.u)).reshape(-1)


class Newsgroups(Softmax):
    """l2reg_on_twentynews.py: g = cross entropy + mean of exp(x_j) w_jk^2 / 2."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.linspace(0.5, 1.5, self.shape[0], **DOUBLE)

    def inner(self, x, w):
        W = w.view(self.shape)
        return F.cross_entropy(self.X @ W, self.y) + 0.5 * (W.square() * x.exp()[:, None]).mean()

    def decay(self):
        return (self.x.exp()[:, None].expand(self.shape) / self.w.numel()).reshape(-1)

    def hessian(self, w):
        return self.weighted_hessian(w, torch.full((len(self.y),), 1 / len(self.y), **DOUBLE)) + torch.diag(self.decay())

    def cross(self, w):
        rows = torch.eye(self.shape[0], **DOUBLE).repeat_interleave(self.shape[1], dim=1)  # x_j meets w_jk
        return rows * (self.decay() * w)


class Cleaning(Softmax):
    """hypercleaning.py: g = mean of sigmoid(x_i) CE_i + 0.05 |w|^2."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.linspace(-1, 1, len(self.y), **DOUBLE)

    def inner(self, x, w):
        losses = F.cross_entropy(self.X @ w.view(self.shape), self.y, reduction="none")
        return (x.sigmoid() * losses).mean() + 0.05 * w.square().sum()

    def hessian(self, w):
        return self.weighted_hessian(w, self.x.sigmoid() / len(self.y)) + 0.1 * torch.eye(w.numel(), **DOUBLE)

    def cross(self, w):
        s = self.x.sigmoid()
        return (s * (1 - s) / len(s))[:, None] * self.example_gradients(w)


class Imaml(Softmax):
    """iMAML.py: g = cross entropy of a task + |w - x|^2: x is where all tasks begin."""

    def __init__(self) -> None:
        super().__init__()
        self.x = torch.linspace(-0.5, 0.5, self.w.numel(), **DOUBLE)

    def inner(self, x, w):
        return F.cross_entropy(self.X @ w.view(self.shape), self.y) + (w - x).square().sum()

    def hessian(self, w):
        return self.weighted_hessian(w, torch.full((len(self.y),), 1 / len(self.y), **DOUBLE)) + 2 * torch.eye(w.numel(), **DOUBLE)

    def cross(self, w):
        return -2 * torch.eye(w.numel(), **DOUBLE)


class Equilibrium:
    """The notebook of equilibrium models: w = tanh(A w + b) with x = (A, b), f = |w - c|^2/2.

    Its solution is where g = |w - tanh(A w + b)|^2/2 vanishes, and there both have one hypergradient.
    """

    def __init__(self, n: int = 6) -> None:
        generator = torch.Generator().manual_seed(3)
        draw = lambda *size: torch.randn(*size, generator=generator, **DOUBLE)  # noqa: E731
        self.x, self.w, self.c = [0.5 * draw(n, n) / n**0.5, draw(n)], torch.zeros(n, **DOUBLE), draw(n)

    def step(self, x, w):
        return (x[0] @ w + x[1]).tanh()

    def inner(self, x, w):
        return 0.5 * (w - self.step(x, w)).square().sum()

    def outer(self, x, w):
        return 0.5 * (w - self.c).square().sum()

    def solution(self) -> torch.Tensor:
        w = self.w
        for _ in range(500):
            w = self.step(self.x, w)
        return w

    def exact(self, w):
        slope = torch.diag(1 - w.square())
        v = slope @ torch.linalg.solve((torch.eye(len(w), **DOUBLE) - slope @ self.x[0]).T, w - self.c)
        return [torch.outer(v, w), v]


EXAMPLES = (Logistic, Newsgroups, Cleaning, Imaml)
IMPLICIT = {"exact": {}, "cg": {"terms": 200}, "minres": {"terms": 200}, "neumann": {"terms": 3000}, "fixed-point": {"terms": 3000}}


class Hypertorch(unittest.TestCase):
    def test_implicit_estimators_give_the_closed_form(self) -> None:
        for kind in EXAMPLES:
            known = kind()
            problem, w = bilevel.Problem(outer=known.outer, inner=known.inner), known.newton()
            for method, options in IMPLICIT.items():
                with self.subTest(example=kind.__name__, method=method):
                    rate = {} if method in ("exact", "cg", "minres") else {"linear_rate": known.rate}
                    found = bilevel.hypergradient(problem, known.x, w, method=method, **options, **rate)
                    self.assertLess(relative(found.value, known.exact(w)), 1e-6)

    def test_differentiated_steps_give_the_closed_form(self) -> None:
        for kind in EXAMPLES:
            known = kind()
            problem = bilevel.Problem(outer=known.outer, inner=known.inner)
            exact = known.exact(known.newton())
            for method in ("reverse", "reverse-sqrt"):
                with self.subTest(example=kind.__name__, method=method):
                    found = bilevel.hypergradient(problem, known.x, known.w, method=method, inner_steps=1000, inner_rate=known.rate)
                    self.assertLess(relative(found.value, exact), 1e-6)

    def test_an_equilibrium(self) -> None:
        known = Equilibrium()
        w = known.solution()
        found = bilevel.hypergradient(bilevel.Problem(outer=known.outer, inner=known.inner), known.x, w, method="cg", terms=200)
        for part, exact in zip(found.value, known.exact(w)):
            self.assertLess(relative(part, exact), 1e-6)


@unittest.skipUnless(os.environ.get("HYPERTORCH"), "HYPERTORCH does not name the folder of hypertorch's source")
class Beside(unittest.TestCase):
    def test_both_give_the_same(self) -> None:
        sys.path.insert(0, os.environ["HYPERTORCH"])
        import hypergrad

        steps, terms = 50, 20
        for kind in (Quadratic, Ridge, *EXAMPLES):
            known = kind()
            rate = getattr(known, "rate", 0.02)
            problem = bilevel.Problem(outer=known.outer, inner=known.inner)
            descent = hypergrad.GradientDescent(lambda w, x: known.inner(x[0], w[0]), rate)
            x = known.x.clone().requires_grad_(True)
            history = [[known.w.clone().requires_grad_(True)]]
            for _ in range(steps):
                history.append([w.detach().requires_grad_(True) for w in descent(history[-1], [x], create_graph=False)])
            outer = lambda w, x: known.outer(x[0], w[0])  # noqa: E731
            theirs = {
                "reverse": hypergrad.reverse(history, [x], [descent] * steps, outer, set_grad=False)[0],
                "fixed-point": hypergrad.fixed_point(history[-1], [x], terms, descent, outer, tol=0, set_grad=False)[0],
                "cg": hypergrad.CG(history[-1], [x], terms, descent, outer, tol=0, set_grad=False)[0],
            }
            for method, value in theirs.items():
                with self.subTest(example=kind.__name__, method=method):
                    options = {} if method == "reverse" else {"terms": terms}
                    if method == "fixed-point":
                        options["linear_rate"] = rate
                    ours = bilevel.hypergradient(problem, known.x, known.w, method=method, inner_steps=steps, inner_rate=rate, **options)
                    self.assertLess(relative(ours.value, value.detach()), 1e-6)


if __name__ == "__main__":
    unittest.main()
