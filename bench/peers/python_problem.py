#!/usr/bin/python3
"""A Python problem's hypergradient by `import bilevel` beside the same inner steps, conjugate gradients and cross product
by hand in eager PyTorch; the same problem by its name, which has closed forms; and what a call of the module costs beside its
work. Logistic problems with a weight per example, one thread, processor time; the two sides take turns, and the fastest of
several counts. Prints one line a case.
"""

import bilevel  # first: it chooses OpenBLAS's kernels
import statistics
import tempfile
import time

import numpy
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

    def by_name():
        with tempfile.TemporaryDirectory() as folder:
            files = {"train_features": X, "train_labels": y, "valid_features": V, "valid_labels": u}
            for name, tensor in files.items():
                numpy.save(f"{folder}/{name}.npy", tensor.numpy())
            return bilevel.problem("hyper-cleaning", **{name: f"{folder}/{name}.npy" for name in files}, bias=False,
                                   regularization=0.01, dtype="float")

    return outer, inner, torch.zeros(examples), torch.zeros(features * classes), by_name


def fastest(work, seconds=1.5):
    """Of the process, which other work on the machine does not lengthen."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best


def compare(what, problem, outer, inner, x, w):
    def ours():
        return bilevel.hypergradient(problem, x, w, method="cg", terms=TERMS, inner_steps=STEPS, inner_rate=RATE)

    expected, _ = by_hand(outer, inner, x, w)
    error = ((ours().value - expected).norm() / expected.norm()).item()
    times = [(fastest(ours, 1), fastest(lambda: by_hand(outer, inner, x, w), 1)) for _ in range(4)]
    own, hand = (min(t) for t in zip(*times))
    print(f"{what}: bilevel {1e3 * own:.2f} ms, by hand {1e3 * hand:.2f} ms, ratio {own / hand:.3f}, "
          f"relative difference {error:.1e}", flush=True)


def main():
    torch.set_num_threads(1)
    for size in ((1000, 100, 10), (5000, 784, 10)):
        outer, inner, x, w, by_name = cleaning(*size)
        what = f"{size[0]} examples, {size[1]} features"
        compare(f"{what}, Python losses", bilevel.Problem(outer=outer, inner=inner), outer, inner, x, w)
        compare(f"{what}, closed forms", by_name(), outer, inner, x, w)
    # A call with nothing to do: what is left is Python, options, and the way there and back.
    named = bilevel.problem("quadratic")
    x, w = named.x, named.w
    inside, outside = [], []
    for _ in range(20000):
        begin = time.perf_counter()
        found = bilevel.hypergradient(named, x, w, method="t1t2")
        whole = time.perf_counter() - begin
        inside.append(1e6 * (found.seconds + found.inner_seconds))
        outside.append(1e6 * whole - inside[-1])
    print(f"a call of hypergradient(): {statistics.median(inside):.1f} us in the library, {statistics.median(outside):.1f} us "
          f"around it (medians; the least {min(inside):.1f} and {min(outside):.1f})")


if __name__ == "__main__":
    main()
