"""The search network of DARTS in eager PyTorch: a module for every operation on every edge, as the published codes have
it. search_step.py measures it.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

NODES = 4
# Per operation, in the space's order: none, max_pool_3x3, avg_pool_3x3, skip_connect, and these.
CONVOLUTIONS = [("separable", 3), ("separable", 5), ("dilated", 3), ("dilated", 5)]


def norm(channels, affine=False):
    return nn.BatchNorm2d(channels, affine=affine, track_running_stats=False)


def relu_conv_norm(inputs, outputs):
    return nn.Sequential(nn.ReLU(inplace=False), nn.Conv2d(inputs, outputs, 1, bias=False), norm(outputs))


def depthwise_pointwise(channels, kernel, stride, dilation):
    padding = dilation * (kernel - 1) // 2
    return [nn.ReLU(inplace=False),
            nn.Conv2d(channels, channels, kernel, stride=stride, padding=padding, dilation=dilation, groups=channels,
                      bias=False),
            nn.Conv2d(channels, channels, 1, bias=False), norm(channels)]


class Zero(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.stride = stride

    def forward(self, x):
        return x.mul(0.0) if self.stride == 1 else x[:, :, ::self.stride, ::self.stride].mul(0.0)


class FactorizedReduce(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.a = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.b = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False)
        self.norm = norm(outputs)

    def forward(self, x):
        x = F.relu(x)
        return self.norm(torch.cat([self.a(x), self.b(x[:, :, 1:, 1:])], dim=1))


class MixedOperation(nn.Module):
    def __init__(self, channels, stride):
        super().__init__()
        self.ops = nn.ModuleList([
            Zero(stride),
            nn.Sequential(nn.MaxPool2d(3, stride=stride, padding=1), norm(channels)),
            nn.Sequential(nn.AvgPool2d(3, stride=stride, padding=1, count_include_pad=False), norm(channels)),
            nn.Identity() if stride == 1 else FactorizedReduce(channels, channels),
        ])
        for kind, kernel in CONVOLUTIONS:
            if kind == "separable":
                self.ops.append(nn.Sequential(*depthwise_pointwise(channels, kernel, stride, 1),
                                              *depthwise_pointwise(channels, kernel, 1, 1)))
            else:
                self.ops.append(nn.Sequential(*depthwise_pointwise(channels, kernel, stride, 2)))

    def forward(self, x, weights):
        return sum(weight * op(x) for weight, op in zip(weights, self.ops))


class Cell(nn.Module):
    def __init__(self, before_last, last, channels, reduce, before_reduced):
        super().__init__()
        self.reduce = reduce
        self.first = FactorizedReduce(before_last, channels) if before_reduced else relu_conv_norm(before_last, channels)
        self.second = relu_conv_norm(last, channels)
        self.edges = nn.ModuleDict({f"{i}->{j}": MixedOperation(channels, 2 if reduce and i < 2 else 1)
                                    for j in range(NODES) for i in range(j + 2)})

    def forward(self, before_last, last, weights):
        vertices = [self.first(before_last), self.second(last)]
        for j in range(NODES):
            begin = j * (j + 3) // 2
            vertices.append(sum(self.edges[f"{i}->{j}"](vertices[i], weights[begin + i]) for i in range(j + 2)))
        return torch.cat(vertices[2:], dim=1)

    def in_order(self):
        """The parameters as the flat vector has them: by source vertex, operation, its tensors, then target."""
        yield from self.first.parameters()
        yield from self.second.parameters()
        for i in range(NODES + 1):
            edges = [self.edges[f"{i}->{j}"] for j in range(max(0, i - 1), NODES)]
            for operation in range(len(edges[0].ops)):
                for tensors in zip(*(edge.ops[operation].parameters() for edge in edges)):
                    yield from tensors


class Supernet(nn.Module):
    def __init__(self, channels, cells, classes=10):
        super().__init__()
        before_last = last = 3 * channels
        self.stem = nn.Sequential(nn.Conv2d(3, last, 3, padding=1, bias=False), norm(last, affine=True))
        self.body = nn.ModuleList()
        before_reduced = False
        reductions = set() if cells < 2 else {1} if cells == 2 else {cells // 3, 2 * cells // 3}
        for c in range(cells):
            reduce = c in reductions
            channels *= 2 if reduce else 1
            self.body.append(Cell(before_last, last, channels, reduce, before_reduced))
            before_last, last, before_reduced = last, NODES * channels, reduce
        self.classifier = nn.Linear(last, classes)
        self.alpha = nn.Parameter(torch.zeros(28, 8))

    def forward(self, x):
        normal, reduction = F.softmax(self.alpha, dim=1).chunk(2)
        before_last = last = self.stem(x)
        for cell in self.body:
            before_last, last = last, cell(before_last, last, reduction if cell.reduce else normal)
        return self.classifier(F.adaptive_avg_pool2d(last, 1).flatten(1))

    def weights(self):
        result = list(self.stem.parameters())
        for cell in self.body:
            result.extend(cell.in_order())
        return result + list(self.classifier.parameters())
