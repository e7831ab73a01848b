#!/usr/bin/python3
"""A Python problem's hypergradient by `import bilevel` beside the same inner steps, conjugate gradients and cross product
by hand in eager PyTorch, and what a call of the module costs beside its work. Two logistic problems with a weight per
example; the two sides take turns, and the fastest of several counts. Prints one line a case.
"""

import bilevel  # first: it chooses OpenBLAS's kernels
import time

import torch
import torch.nn.functional as F

STEPS, TERMS, RATE = 20, 10, 0.5


def by_hand(outer, inner, x, w):
    """The same derivatives in the same order: STEPS gradient steps, the gradient at the end, TERMS steps of CG, a product."""
    w = w.detach()
    for _ in range(STEPS):
        leaf = w.requires_grad_(True)
        w = (leaf - RATE * torch.autograd.grad(inner(x, leaf), leaf)[0]).detach()
    leaf = w.requires_grad_(True)
    norm = torch.autograd.grad(inner(x, leaf), leaf)[0].norm().item()
    w_leaf, x_leaf = w.detach().requires_grad_(True), x.detach().requires_grad_(True)
    fx, fw = torch.autograd.grad(outer(x_leaf, w_leaf), (x_leaf, w_leaf), allow_unused=True)
    gradient = torch.autograd.grad(inner(x_leaf, w_leaf), w_leaf, create_graph=True)[0]
    v = torch.zeros_like(fw)
    r = fw.clone()
    p = r.clone()
    rr = r.dot(r)
    for _ in range(TERMS):
        hp = torch.autograd.grad(gradient, w_leaf, p, retain_graph=True)[0]
        alpha = rr / p.dot(hp)
        v = v + alpha * p
        r = r - alpha * hp
        new = r.dot(r)
        p = r + (new / rr) * p
        rr = new
        rr.item()  # the residual is looked at, as in the library
    cross = torch.autograd.grad(gradient, x_leaf, v)[0]
    return (-cross if fx is None else fx - cross), norm


def cleaning(examples, features, classes):
    torch.manual_seed(0)
    X, V = torch.randn(examples, features), torch.randn(examples, features)
    W = torch.randn(features, classes)
    y, u = (X @ W).argmax(1), (V @ W).argmax(1)

    def inner(x, w):
        w = w.view(features, classes)
        return (x.sigmoid() * F.cross_entropy(X @ w, y, reduction="none")).mean() + 0.01 * w.square().sum()

    def outer(x, w):
        return F.cross_entropy(V @ w.view(features, classes), u)

    return outer, inner, torch.zeros(examples), torch.zeros(features * classes)


def fastest(work, seconds=1.5):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def main():
    torch.set_num_threads(1)
    for size in ((1000, 100, 10), (5000, 784, 10)):
        outer, inner, x, w = cleaning(*size)
        problem = bilevel.Problem(outer=outer, inner=inner)

        def ours():
            return bilevel.hypergradient(problem, x, w, method="cg", terms=TERMS, inner_steps=STEPS, inner_rate=RATE)

        expected, _ = by_hand(outer, inner, x, w)
        error = ((ours().value - expected).norm() / expected.norm()).item()
        times = [(fastest(ours, 0.7), fastest(lambda: by_hand(outer, inner, x, w), 0.7)) for _ in range(4)]
        own, hand = (min(t) for t in zip(*times))
        print(f"{size[0]} examples, {size[1]} features: bilevel {1e3 * own:.2f} ms, by hand {1e3 * hand:.2f} ms, "
              f"ratio {own / hand:.3f}, relative difference {error:.1e}")
    # A call with nothing to do: what is left is Python, options, and the way there and back.
    named = bilevel.problem("quadratic")
    x, w = named.x, named.w
    whole = fastest(lambda: bilevel.hypergradient(named, x, w, method="t1t2"))
    inside = min(bilevel.hypergradient(named, x, w, method="t1t2").seconds for _ in range(2000))
    print(f"a call of hypergradient(): {1e6 * whole:.1f} us, of which the estimator {1e6 * inside:.1f} us: overhead "
          f"{1e6 * (whole - inside):.1f} us, one inner gradient for its norm included")


if __name__ == "__main__":
    main()
