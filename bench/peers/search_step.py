#!/usr/bin/python3
"""One step of an architecture search on NAS-Bench-201 (or DARTS's space) in eager PyTorch: T weight steps of SGD, the Neumann
hypergradient (K exact Hessian products on one retained graph, the cross product by a central difference), one Adam step
of alpha. A module for every operation on every edge, as the published codes have it. Reads weights.npy, alpha.npy,
images.npy and labels.npy (training and validation images, one batch each) from --data, as bench_search_step --write
leaves them, so that both sides compute the same hypergradient. Prints JSON, times in milliseconds.
"""

import argparse
import ast
import json
import pathlib
import statistics
import struct
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import blas
import darts_supernet

RATE, MOMENTUM, DECAY, CLIP = 0.01, 0.9, 5e-4, 5.0
ALPHA_RATE, ALPHA_BETAS, ALPHA_DECAY = 3e-4, (0.5, 0.999), 1e-3
DIFFERENCE = 0.01


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


class ReluConvNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride, affine):
        super().__init__()
        self.op = nn.Sequential(
            nn.ReLU(inplace=False),
            nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False),
            nn.BatchNorm2d(outputs, affine=affine, track_running_stats=False),
        )

    def forward(self, x):
        return self.op(x)


class Zero(nn.Module):
    def forward(self, x):
        return x.mul(0.0)


class MixedOperation(nn.Module):
    """none, skip_connect, nor_conv_1x1, nor_conv_3x3, avg_pool_3x3."""

    def __init__(self, channels):
        super().__init__()
        self.ops = nn.ModuleList([
            Zero(),
            nn.Identity(),
            ReluConvNorm(channels, channels, 1, 1, False),
            ReluConvNorm(channels, channels, 3, 1, False),
            nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
        ])

    def forward(self, x, weights):
        return sum(weight * op(x) for weight, op in zip(weights, self.ops))


class Cell(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.edges = nn.ModuleDict({f"{i}->{j}": MixedOperation(channels) for j in range(1, 4) for i in range(j)})

    def forward(self, x, weights):
        nodes = [x]
        for j in range(1, 4):
            first = j * (j - 1) // 2
            nodes.append(sum(self.edges[f"{i}->{j}"](nodes[i], weights[first + i]) for i in range(j)))
        return nodes[-1]

    def in_order(self):
        """The parameters as the flat vector has them: by source node, then operation, then target."""
        for i in range(3):
            for operation in (2, 3):
                for j in range(i + 1, 4):
                    yield self.edges[f"{i}->{j}"].ops[operation].op[1].weight


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.a = ReluConvNorm(inputs, outputs, 3, 2, True)
        self.b = ReluConvNorm(outputs, outputs, 3, 1, True)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, stride=2), nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x):
        return self.shortcut(x) + self.b(self.a(x))

    def in_order(self):
        return self.parameters()


class Supernet(nn.Module):
    def __init__(self, channels, cells, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels, track_running_stats=False))
        self.body = nn.ModuleList()
        for stage in range(3):
            width = channels << stage
            if stage > 0:
                self.body.append(ResidualBlock(width // 2, width))
            self.body.extend(Cell(width) for _ in range(cells))
        self.last = nn.Sequential(nn.BatchNorm2d(width, track_running_stats=False), nn.ReLU(inplace=False))
        self.classifier = nn.Linear(width, classes)
        self.alpha = nn.Parameter(torch.zeros(6, 5))

    def forward(self, x):
        weights = F.softmax(self.alpha, dim=1)
        x = self.stem(x)
        for part in self.body:
            x = part(x, weights) if isinstance(part, Cell) else part(x)
        return self.classifier(F.adaptive_avg_pool2d(self.last(x), 1).flatten(1))

    def weights(self):
        result = list(self.stem.parameters())
        for part in self.body:
            result.extend(part.in_order())
        return result + list(self.last.parameters()) + list(self.classifier.parameters())


def load(model, flat, alpha):
    begin = 0
    with torch.no_grad():
        for weight in model.weights():
            weight.copy_(flat[begin:begin + weight.numel()].view_as(weight))
            begin += weight.numel()
        model.alpha.copy_(alpha.view_as(model.alpha))
    assert begin == flat.numel(), f"{begin} weights here, {flat.numel()} in the file"


class Search:
    def __init__(self, model, train, valid, options):
        self.model, self.train, self.valid = model, train, valid
        self.steps, self.terms = options.steps, options.terms
        self.weights = model.weights()
        self.w_optimizer = torch.optim.SGD(
            self.weights, lr=RATE, momentum=MOMENTUM, nesterov=True, weight_decay=DECAY)
        self.alpha_optimizer = torch.optim.Adam(
            [model.alpha], lr=ALPHA_RATE, betas=ALPHA_BETAS, weight_decay=ALPHA_DECAY)

    def loss(self, data):
        return F.cross_entropy(self.model(data[0]), data[1])

    def weight_step(self):
        self.w_optimizer.zero_grad()
        gradients = torch.autograd.grad(self.loss(self.train), self.weights)
        for weight, gradient in zip(self.weights, gradients):
            weight.grad = gradient
        nn.utils.clip_grad_norm_(self.weights, CLIP)
        self.w_optimizer.step()

    def alpha_gradient(self):
        gradients = torch.autograd.grad(self.loss(self.valid), [self.model.alpha] + self.weights)
        return gradients[0], list(gradients[1:])

    def gradient_graph(self):
        return torch.autograd.grad(self.loss(self.train), self.weights, create_graph=True)

    def hessian_product(self, graph, vector):
        products = torch.autograd.grad(graph, self.weights, grad_outputs=vector, retain_graph=True)
        return [product + DECAY * v for product, v in zip(products, vector)]

    def cross_difference(self, vector):
        epsilon = DIFFERENCE / torch.cat([v.flatten() for v in vector]).norm()
        gradients = []
        for move in (epsilon, -2 * epsilon):
            with torch.no_grad():
                for weight, v in zip(self.weights, vector):
                    weight.add_(v * move)
            gradients.append(torch.autograd.grad(self.loss(self.train), self.model.alpha)[0])
        with torch.no_grad():
            for weight, v in zip(self.weights, vector):
                weight.add_(v * epsilon)
        return (gradients[0] - gradients[1]) / (2 * epsilon)

    def step(self):
        for _ in range(self.steps):
            self.weight_step()
        direct, vector = self.alpha_gradient()
        graph = self.gradient_graph()
        total = [v.clone() for v in vector]
        for _ in range(self.terms):
            vector = [v - RATE * p for v, p in zip(vector, self.hessian_product(graph, vector))]
            total = [t + v for t, v in zip(total, vector)]
        del graph
        self.model.alpha.grad = direct - self.cross_difference([RATE * t for t in total])
        self.alpha_optimizer.step()
        return self.model.alpha.grad


class Clock:
    """As bench/search_step.cpp: the process's own time on one thread of the CPU, else the wall's."""

    def __init__(self, device):
        self.gpu = device.type == "cuda"
        self.now = time.process_time if not self.gpu and torch.get_num_threads() == 1 else time.perf_counter

    def measure(self, repeat, work):
        times = []
        for _ in range(repeat):
            self.wait()
            begin = self.now()
            work()
            self.wait()
            times.append(1e3 * (self.now() - begin))
        return {"median": statistics.median(times), "min": min(times)}

    def wait(self):
        if self.gpu:
            torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder that bench_search_step --write made")
    parser.add_argument("--space", default="nasbench201", choices=["nasbench201", "darts"])
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--cells", type=int, default=1, help="a stage; in all in the space of DARTS")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=4, help="T")
    parser.add_argument("--terms", type=int, default=2, help="K")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--only", choices=["step", "parts"])
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not options.double
    tensors = {"device": device, "dtype": torch.float64 if options.double else torch.float32}
    folder = pathlib.Path(options.data)
    images = read_npy(folder / "images.npy").to(**tensors)
    labels = read_npy(folder / "labels.npy").to(device)
    assert len(labels) == 2 * options.batch, f"{len(labels)} images in {folder}, not two batches of {options.batch}"
    half = options.batch
    supernet = darts_supernet.Supernet if options.space == "darts" else Supernet
    model = supernet(options.channels, options.cells).to(**tensors)
    load(model, read_npy(folder / "weights.npy").to(**tensors), read_npy(folder / "alpha.npy").to(**tensors))
    search = Search(model, (images[:half], labels[:half]), (images[half:], labels[half:]), options)

    clock = Clock(device)
    first = search.step().double()  # warms up, too
    record = {
        "kernels": blas.kernels(),
        "parameters": sum(weight.numel() for weight in search.weights),
        "hypergradient_norm": first.norm().item(),
        "hypergradient_first": first.flatten()[1].item(),
    }
    if options.only != "parts":
        record["step"] = clock.measure(options.repeat, search.step)
    if options.only != "step":
        parts = {}
        parts["weight_step"] = clock.measure(options.repeat, search.weight_step)
        parts["alpha_gradient"] = clock.measure(options.repeat, search.alpha_gradient)
        parts["hessian_graph"] = clock.measure(options.repeat, search.gradient_graph)
        _, vector = search.alpha_gradient()
        graph = search.gradient_graph()
        parts["hessian_product"] = clock.measure(options.repeat, lambda: search.hessian_product(graph, vector))
        del graph  # before the weights move again
        parts["cross_difference"] = clock.measure(options.repeat, lambda: search.cross_difference(vector))
        record["parts"] = parts
    if device.type == "cuda":
        record["peak_mb"] = torch.cuda.max_memory_allocated() / 1e6
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
