#!/usr/bin/python3
"""The hypergradient of a meta-batch in eager PyTorch, as the published codes compute it: a loop over the tasks; for each,
T gradient steps of a linear head on a shared two-layer embedding, conjugate gradients on Hessian products by autograd, and
the cross product by autograd. Reads x.npy and the tasks from --data, as bench_meta_batch --write leaves them. Prints JSON,
time in milliseconds, the fastest of several.
"""

import argparse
import ast
import json
import pathlib
import struct
import time

import torch
import torch.nn.functional as F

import blas

RIDGE, RATE, STEPS, TERMS = 0.01, 0.05, 20, 10


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


def embed(parts, inputs):
    w1, b1, w2, b2 = parts
    return F.relu(F.linear(F.relu(F.linear(inputs, w1, b1)), w2, b2))


def inner_loss(head, features, targets):
    weight, bias = head
    return F.cross_entropy(F.linear(features, weight, bias), targets) + RIDGE * (
        weight.square().sum() + bias.square().sum())


def dot(a, b):
    return sum((u * v).sum() for u, v in zip(a, b))


def task_hypergradient(parts, train, train_targets, valid, valid_targets, ways):
    with torch.no_grad():
        features = embed(parts, train)
    head = [features.new_zeros(ways, features.shape[1]), features.new_zeros(ways)]
    for _ in range(STEPS):
        head = [h.detach().requires_grad_(True) for h in head]
        gradient = torch.autograd.grad(inner_loss(head, features, train_targets), head)
        head = [h - RATE * g for h, g in zip(head, gradient)]
    head = [h.detach().requires_grad_(True) for h in head]

    outer = F.cross_entropy(F.linear(embed(parts, valid), *head), valid_targets)
    outer_gradients = torch.autograd.grad(outer, [*head, *parts])
    p, direct = outer_gradients[:2], outer_gradients[2:]
    gradient = torch.autograd.grad(inner_loss(head, embed(parts, train), train_targets), head, create_graph=True)

    def hessian(v):
        return torch.autograd.grad(gradient, head, v, retain_graph=True)

    v = [torch.zeros_like(h) for h in head]
    r = [u.clone() for u in p]
    d = [u.clone() for u in p]
    squared = dot(r, r)
    for _ in range(TERMS):
        q = hessian(d)
        step = squared / dot(d, q)
        v = [a + step * b for a, b in zip(v, d)]
        r = [a - step * b for a, b in zip(r, q)]
        following = dot(r, r)
        d = [a + following / squared * b for a, b in zip(r, d)]
        squared = following
    cross = torch.autograd.grad(gradient, parts, v)
    return [a - b for a, b in zip(direct, cross)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    x, train, train_targets, valid, valid_targets = (
        read_npy(options.data / f"{name}.npy")
        for name in ("x", "train_inputs", "train_targets", "valid_inputs", "valid_targets"))
    inputs, ways = train.shape[2], int(train_targets.max()) + 1
    # x is the embedding: inputs * h + h + h * h + h numbers.
    h = next(h for h in range(1, 100000) if inputs * h + h + h * h + h == x.numel())
    sizes = [(h, inputs), (h,), (h, h), (h,)]
    parts = [part.reshape(size).clone().requires_grad_(True)
             for part, size in zip(torch.split(x, [h * inputs, h, h * h, h]), sizes)]

    def hypergradient():
        total = None
        for task in zip(train, train_targets, valid, valid_targets):
            one = task_hypergradient(parts, *task, ways)
            total = one if total is None else [a + b for a, b in zip(total, one)]
        return torch.cat([part.flatten() for part in total]) / len(train)

    value = hypergradient()
    times = []
    for _ in range(options.repeat):
        begin = time.perf_counter()
        hypergradient()
        times.append(1000 * (time.perf_counter() - begin))
    print(json.dumps({"kernels": blas.kernels(), "time": min(times), "hypergradient_norm": value.norm().item(),
                      "hypergradient_first": value[0].item()}))


if __name__ == "__main__":
    main()
