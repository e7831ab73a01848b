#!/usr/bin/python3
"""The unrolled gradient of bench/quartic.h in eager PyTorch, as its users write it: T steps of gradient descent with
create_graph, then one backward pass through all of them. Prints one line of name=value, as bench_unroll_memory
--method does. --formula writes the inner gradient by hand, which spares PyTorch the graph of a gradient's gradient.
"""

import argparse
import ctypes
import time

import torch

import blas


def status_bytes(field):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no field {field}")


def reset_peak():
    """As bench/support.h: what is read as the peak from here on is that of what follows."""
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")
    return status_bytes("VmHWM")


def hypergradient(inner_target, outer_target, x, steps, rate, formula):
    groups, size = inner_target.shape[0], inner_target.numel()
    x = x.detach().requires_grad_()
    w = torch.zeros_like(outer_target).requires_grad_()
    scale = x.exp().reshape(groups, 1)
    for _ in range(steps):
        if formula:
            gradient = w**3 + (scale * (w.view_as(inner_target) - inner_target)).reshape(-1)
        else:
            scale = x.exp().reshape(groups, 1)
            residual = w.view_as(inner_target) - inner_target
            loss = (scale * residual.pow(2)).sum() / 2 + w.pow(4).sum() / 4
            (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        w = w - rate * gradient
    outer = (w - outer_target).pow(2).sum() / (2 * size)
    return torch.autograd.grad(outer, x)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--outer", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--float", action="store_true")
    parser.add_argument("--formula", action="store_true")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    dtype = torch.float32 if options.float else torch.float64
    i = torch.arange(options.size, dtype=torch.float64)
    inner_target = i.sin().to(dtype).view(options.outer, -1)
    outer_target = i.cos().to(dtype)
    x = torch.arange(options.outer, dtype=dtype) / -options.outer
    hypergradient(inner_target, outer_target, x, 2, 0.01, options.formula)

    before = reset_peak()
    begin, cpu_begin = time.perf_counter(), time.process_time()
    value = hypergradient(inner_target, outer_target, x, options.steps, 0.01, options.formula)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    value = value.double()
    print(
        f"kernels={blas.kernels()} seconds={seconds} cpu_seconds={cpu_seconds} rise={status_bytes('VmHWM') - before} "
        f"norm={value.norm().item()} values={','.join(v.hex() for v in value.tolist())}"
    )


if __name__ == "__main__":
    main()
