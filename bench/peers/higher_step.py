#!/usr/bin/python3
"""The hypergradient of a meta-batch by higher (facebookresearch/higher), whose source folder --source names: for each
task the network is copied, trained by its differentiable SGD, and the validation loss differentiated to the common start.
maml trains the whole network, anil its last layer. Reads x.npy and the tasks from --data, as bench_meta_batch --learner
maml --write leaves them. Prints JSON, time in milliseconds, the fastest of several.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import blas
from meta_batch import read_npy


def network_of(x, inputs, ways):
    """Two hidden layers of equal width and a linear one, flat as bilevel has them."""
    h = next(h for h in range(1, 100000) if inputs * h + h + h * h + h + h * ways + ways == x.numel())
    network = nn.Sequential(nn.Linear(inputs, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, ways)).to(x.dtype)
    nn.utils.vector_to_parameters(x, network.parameters())
    return network


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", required=True, help="the folder that holds higher/")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--learner", choices=["maml", "anil"], required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    sys.path.insert(0, options.source)
    import higher  # pylint: disable=import-outside-toplevel

    torch.set_num_threads(options.threads)
    x, train, train_targets, valid, valid_targets = (
        read_npy(options.data / f"{name}.npy")
        for name in ("x", "train_inputs", "train_targets", "valid_inputs", "valid_targets"))
    network = network_of(x, train.shape[2], int(train_targets.max()) + 1)
    embedding, head = network[:4], network[4]
    parameters = list(network.parameters())

    def task_loss(inputs, targets, valid_inputs, valid_of):
        learned, of_task = (network, lambda fmodel, v: fmodel(v)) if options.learner == "maml" else (
            head, lambda fmodel, v: fmodel(embedding(v)))
        optimizer = torch.optim.SGD(learned.parameters(), lr=options.rate)
        with higher.innerloop_ctx(learned, optimizer, copy_initial_weights=False) as (fmodel, diffopt):
            for _ in range(options.steps):
                diffopt.step(F.cross_entropy(of_task(fmodel, inputs), targets))
            return F.cross_entropy(of_task(fmodel, valid_inputs), valid_of)

    def hypergradient():
        network.zero_grad()
        for task in zip(train, train_targets, valid, valid_targets):
            (task_loss(*task) / len(train)).backward()
        return torch.cat([p.grad.flatten() for p in parameters])

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
