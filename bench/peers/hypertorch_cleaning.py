#!/usr/bin/python3
"""Hyper-cleaning by hypertorch (prolearner/hypertorch), whose source folder --source names: 100 inner steps of its
gradient descent, then its conjugate gradients (10 steps) and its reverse mode on the same data as softmax_oracle.py.
Prints one line of name=value, times in milliseconds.
"""

import argparse
import sys

import torch

import blas
from softmax_oracle import RATE, STEPS, TERMS, Cleaning, fastest, read_npy


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="the folder that holds hypergrad/")
    parser.add_argument("--features", required=True)
    parser.add_argument("--labels", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--double", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, options.source)
    import hypergrad as hg  # pylint: disable=import-outside-toplevel
    from hypergrad import diff_optimizers  # pylint: disable=import-outside-toplevel

    torch.set_num_threads(options.threads)
    features = read_npy(options.features).to(torch.float64 if options.double else torch.float32)
    labels = read_npy(options.labels)
    problem = Cleaning(features, labels, int(labels.max()) + 1)
    x = problem.x.clone().requires_grad_()
    descent = diff_optimizers.GradientDescent(lambda params, hparams: problem.inner(params[0], hparams[0]), RATE)

    def outer(params, _):
        return problem.outer(params[0])

    def run_steps():
        history = [[problem.start.clone().requires_grad_()]]
        for _ in range(STEPS):
            (w,) = descent(history[-1], [x], create_graph=False)
            history.append([w.detach().requires_grad_()])
        return history

    history, steps = fastest(options.rounds, run_steps)
    line = [f"kernels={blas.kernels()}", f"steps={steps}"]
    for name, work in {
        "cg": lambda: hg.CG(history[-1], [x], TERMS, descent, outer, tol=0, set_grad=False),
        "reverse": lambda: hg.reverse(history, [x], [descent] * STEPS, outer, set_grad=False),
    }.items():
        (value,), milliseconds = fastest(options.rounds, work)
        value = value.detach().double()
        line += [f"{name}={milliseconds}", f"{name}_norm={value.norm().item():.12g}"]
        line += [f"{name}_first={value[0].item():.12g}"]
    print(*line)


if __name__ == "__main__":
    main()
