#!/usr/bin/python3
"""Hyper-cleaning by eager PyTorch, as hypertorch does it: 100 inner steps of gradient descent, the implicit
hypergradient by 10 steps of conjugate gradients, and reverse mode over the 100 kept iterates, which takes every step
again with a graph and differentiates it twice. Reads features.npy and labels.npy (first half trains, second half
validates). Prints one line of name=value, times in milliseconds, as bench_softmax_oracle --only jobs does.
"""

import argparse
import ast
import struct
import time

import torch
import torch.nn.functional as F

import blas

RATE, REGULARIZATION, STEPS, TERMS = 0.1, 0.001, 100, 10


def read_npy(path):
    """Without numpy, which Debian's PyTorch does not need."""
    with open(path, "rb") as file:
        assert file.read(6) == b"\x93NUMPY", path
        wide = file.read(2)[0] > 1
        (length,) = struct.unpack("<I" if wide else "<H", file.read(4 if wide else 2))
        header = ast.literal_eval(file.read(length).decode())
        dtype = {"<f4": torch.float32, "<f8": torch.float64, "<i8": torch.int64}[header["descr"]]
        assert not header["fortran_order"], path
        return torch.frombuffer(bytearray(file.read()), dtype=dtype).reshape(header["shape"])


class Cleaning:
    def __init__(self, features, labels, classes):
        half = features.shape[0] // 2
        self.x_train, self.y_train = features[:half].contiguous(), labels[:half]
        self.x_valid, self.y_valid = features[half:].contiguous(), labels[half:]
        self.start = torch.zeros(classes, features.shape[1], dtype=features.dtype)
        self.x = torch.zeros(half, dtype=features.dtype)

    def inner(self, w, x):
        losses = F.cross_entropy(self.x_train @ w.t(), self.y_train, reduction="none")
        return (x.sigmoid() * losses).mean() + REGULARIZATION * (w * w).sum()

    def outer(self, w):
        return F.cross_entropy(self.x_valid @ w.t(), self.y_valid)

    def step(self, w, x, create_graph):
        (gradient,) = torch.autograd.grad(self.inner(w, x), w, create_graph=create_graph)
        return w - RATE * gradient


def run_steps(problem):
    w, history = problem.start.clone().requires_grad_(), []
    for _ in range(STEPS):
        history.append(w)
        w = problem.step(w, problem.x, False).detach().requires_grad_()
    return w, history


def conjugate_gradients(problem, w):
    x = problem.x.clone().requires_grad_()
    (right,) = torch.autograd.grad(problem.outer(w), w)
    (gradient,) = torch.autograd.grad(problem.inner(w, x), w, create_graph=True)
    solution, residual = torch.zeros_like(right), right.clone()
    direction, square = residual.clone(), residual.flatten().dot(residual.flatten())
    for _ in range(TERMS):
        (product,) = torch.autograd.grad(gradient, w, grad_outputs=direction, retain_graph=True)
        length = square / direction.flatten().dot(product.flatten())
        solution = solution + length * direction
        residual = residual - length * product
        previous, square = square, residual.flatten().dot(residual.flatten())
        direction = residual + square / previous * direction
    return -torch.autograd.grad(gradient, x, grad_outputs=solution)[0]


def reverse(problem, w, history):
    x = problem.x.clone().requires_grad_()
    (adjoint,) = torch.autograd.grad(problem.outer(w), w)
    result = torch.zeros_like(x)
    for before in reversed(history):
        before = before.detach().requires_grad_()
        after = problem.step(before, x, True)
        last = adjoint
        (adjoint,) = torch.autograd.grad(after, before, grad_outputs=last, retain_graph=True)
        result = result + torch.autograd.grad(after, x, grad_outputs=last)[0]
    return result


def fastest(rounds, work):
    """As bench/softmax_oracle.cpp: the process's own time where it has one thread, else the wall's."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    value, best = work(), float("inf")
    for _ in range(rounds):
        begin = clock()
        value = work()
        best = min(best, 1e3 * (clock() - begin))
    return value, best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", required=True)
    parser.add_argument("--labels", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--double", action="store_true")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    features = read_npy(options.features).to(torch.float64 if options.double else torch.float32)
    labels = read_npy(options.labels)
    problem = Cleaning(features, labels, int(labels.max()) + 1)
    (w, history), steps = fastest(options.rounds, lambda: run_steps(problem))
    line = [f"kernels={blas.kernels()}", f"steps={steps}"]
    for name, work in {
        "cg": lambda: conjugate_gradients(problem, w),
        "reverse": lambda: reverse(problem, w, history),
    }.items():
        value, milliseconds = fastest(options.rounds, work)
        value = value.double()
        line += [f"{name}={milliseconds}", f"{name}_norm={value.norm().item():.12g}"]
        line += [f"{name}_first={value[0].item():.12g}"]
    print(*line)


if __name__ == "__main__":
    main()
