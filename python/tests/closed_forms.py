"""Problems whose hypergradients are known in closed form, after the test problems of hypertorch."""

from __future__ import annotations

import bilevel  # before torch: it chooses the BLAS kernels
import torch


def positive(generator: torch.Generator, n: int) -> torch.Tensor:
    a = torch.randn(n, n, generator=generator, dtype=torch.double)
    return a @ a.T / n + torch.eye(n, dtype=torch.double)


class Quadratic:
    """g = w'Aw/2 - w'(Bx + b), f = |w - c|^2/2 + |x|^2/20: w* = A^-1 (Bx + b)."""

    def __init__(self, n: int = 6, m: int = 4, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.double)  # noqa: E731
        self.A, self.B, self.b, self.c = positive(generator, n), draw(n, m), draw(n), draw(n)
        self.x, self.w = draw(m), torch.zeros(n, dtype=torch.double)

    def inner(self, x, w):
        return 0.5 * w @ (self.A @ w) - w @ (self.B @ x + self.b)

    def outer(self, x, w):
        return 0.5 * (w - self.c).square().sum() + 0.05 * x.square().sum()

    def problem(self, **more) -> bilevel.Problem:
        return bilevel.Problem(outer=self.outer, inner=self.inner, x=self.x, w=self.w, **more)

    def solution(self) -> torch.Tensor:
        return torch.linalg.solve(self.A, self.B @ self.x + self.b)

    def exact(self) -> torch.Tensor:
        return 0.1 * self.x + self.B.T @ torch.linalg.solve(self.A, self.solution() - self.c)


class Ridge:
    """One penalty per weight: g = |Xw - y|^2/2 + sum_j exp(x_j) w_j^2/2, f = |Vw - u|^2/2."""

    def __init__(self, n: int = 30, p: int = 5, seed: int = 1) -> None:
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.double)  # noqa: E731
        self.X, self.V, w = draw(n, p), draw(n, p), draw(p)
        self.y, self.u = self.X @ w + 0.5 * draw(n), self.V @ w + 0.5 * draw(n)
        self.x, self.w = 0.3 * draw(p), torch.zeros(p, dtype=torch.double)

    def inner(self, x, w):
        return 0.5 * (self.X @ w - self.y).square().sum() + 0.5 * (x.exp() * w.square()).sum()

    def outer(self, x, w):
        return 0.5 * (self.V @ w - self.u).square().sum()

    def problem(self, **more) -> bilevel.Problem:
        return bilevel.Problem(outer=self.outer, inner=self.inner, x=self.x, w=self.w, **more)

    def hessian(self) -> torch.Tensor:
        return self.X.T @ self.X + torch.diag(self.x.exp())

    def solution(self) -> torch.Tensor:
        return torch.linalg.solve(self.hessian(), self.X.T @ self.y)

    def exact(self) -> torch.Tensor:
        w = self.solution()
        return -self.x.exp() * w * torch.linalg.solve(self.hessian(), self.V.T @ (self.V @ w - self.u))


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found - exact).norm() / exact.norm()).item()
