#!/usr/bin/python3
"""A step of training a NAS-Bench-201 cell from scratch in eager PyTorch: modules as the published code has them, SGD with
Nesterov momentum and weight decay, images in memory. Prints JSON, milliseconds a step.
"""

import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import blas


def relu_conv_norm(inputs, outputs, kernel, stride=1):
    return nn.Sequential(
        nn.ReLU(inplace=False),
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=(kernel - 1) // 2, bias=False),
        nn.BatchNorm2d(outputs))


class Zero(nn.Module):
    def forward(self, x):
        return x.mul(0.0)


def operation(name, channels):
    return {
        "none": Zero,
        "skip_connect": nn.Identity,
        "nor_conv_1x1": lambda: relu_conv_norm(channels, channels, 1),
        "nor_conv_3x3": lambda: relu_conv_norm(channels, channels, 3),
        "avg_pool_3x3": lambda: nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False),
    }[name]()


class Cell(nn.Module):
    def __init__(self, genotype, channels):
        super().__init__()
        self.nodes = nn.ModuleList()
        self.sources = []
        for node in genotype.split("+"):
            edges = [word.rsplit("~", 1) for word in node.strip("|").split("|")]
            self.nodes.append(nn.ModuleList(operation(name, channels) for name, _ in edges))
            self.sources.append([int(source) for _, source in edges])

    def forward(self, x):
        features = [x]
        for operations, sources in zip(self.nodes, self.sources):
            features.append(sum(op(features[source]) for op, source in zip(operations, sources)))
        return features[-1]


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.a = relu_conv_norm(inputs, outputs, 3, 2)
        self.b = relu_conv_norm(outputs, outputs, 3)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2, stride=2), nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x):
        return self.shortcut(x) + self.b(self.a(x))


class Network(nn.Module):
    def __init__(self, genotype, channels, cells, classes=10):
        super().__init__()
        parts = [nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)]
        for stage in range(3):
            width = channels << stage
            if stage > 0:
                parts.append(Residual(width // 2, width))
            parts.extend(Cell(genotype, width) for _ in range(cells))
        self.body = nn.Sequential(*parts, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        return self.classifier(self.body(x).flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--genotype", required=True)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--cells", type=int, default=1, help="a stage")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--autocast", action="store_true", help="bfloat16")
    parser.add_argument("--compile", metavar="MODE", help="torch.compile, which PyTorch 2 has: default, reduce-overhead")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    model = Network(options.genotype, options.channels, options.cells).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    images = torch.randn(options.batch, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (options.batch,), device=device)
    if options.channels_last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    if options.compile:
        model = torch.compile(model, mode=options.compile)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=options.autocast):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    gpu = device.type == "cuda"
    now = time.process_time if not gpu and options.threads == 1 else time.perf_counter

    def wait():
        if gpu:
            torch.cuda.synchronize()

    for _ in range(max(3, options.steps)):
        step()
    wait()
    begin = now()
    for _ in range(options.steps):
        step()
    wait()
    milliseconds = 1e3 * (now() - begin) / options.steps
    print(json.dumps({"kernels": blas.kernels(), "parameters": parameters, "step_ms": milliseconds,
                      "images_per_second": 1e3 * options.batch / milliseconds}, indent=2))


if __name__ == "__main__":
    main()
