"""torch.nn modules as problems."""

from __future__ import annotations

import copy
import unittest

import bilevel  # before torch: it chooses the BLAS kernels
import torch


def data() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    train, valid = torch.linspace(-1, 1, 20).unsqueeze(1), torch.linspace(-0.9, 0.9, 50).unsqueeze(1)
    return train, (3 * train).sin() + 0.5 * torch.randn(20, 1, generator=generator), valid, (3 * valid).sin()


class Modules(unittest.TestCase):
    def setUp(self) -> None:
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
        train, noisy, valid, clean = data()

        def inner(net, x):
            decay = sum(x[i].exp() * p.square().sum() for i, p in enumerate(net.parameters()))
            return (net(train) - noisy).square().mean() + decay

        def outer(net, x):
            return (net(valid) - clean).square().mean()

        self.inner, self.outer = inner, outer
        self.problem = bilevel.ModuleProblem(self.net, outer=outer, inner=inner, x=torch.full((4,), -6.0))

    def test_a_step_is_the_one_by_hand(self) -> None:
        rate = 0.05
        x = self.problem.x.clone().requires_grad_(True)
        parameters = list(self.net.parameters())
        gradients = torch.autograd.grad(self.inner(self.net, x), parameters, create_graph=True)
        moved = dict(zip(dict(self.net.named_parameters()), (p - rate * g for p, g in zip(parameters, gradients))))
        loss = self.outer(lambda t: torch.nn.utils.stateless.functional_call(self.net, moved, t), x)
        by_hand = torch.autograd.grad(loss, x)[0]
        found = bilevel.hypergradient(self.problem, method="reverse", inner_steps=1, inner_rate=rate)
        self.assertLess(((found.value - by_hand).norm() / by_hand.norm()).item(), 1e-5)
        for name, tensor in moved.items():
            self.assertLess((found.w[name] - tensor).abs().max().item(), 1e-6)

    def test_w_is_matched_by_the_names_of_the_parameters(self) -> None:
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))
        rows = torch.randn(5, 2)
        problem = bilevel.ModuleProblem(net, outer=lambda net, x: net(rows).square().mean(),
                                        inner=lambda net, x: (net(rows) - x).square().mean(), x=torch.zeros(2))
        turned = dict(reversed(problem.w.items()))
        options = {"method": "reverse", "inner_steps": 3, "inner_rate": 0.1}
        straight = bilevel.hypergradient(problem, **options)
        self.assertTrue(torch.equal(straight.value, bilevel.hypergradient(problem, w=turned, **options).value))
        problem.write(dict(reversed(straight.w.items())))
        for name, parameter in net.named_parameters():
            self.assertTrue(torch.equal(parameter, straight.w[name]), name)
        less, more = dict(problem.w), {**problem.w, "3.weight": torch.zeros(2)}
        del less["2.bias"]
        other = {**problem.w, "0.bias": torch.zeros(1)}
        for w, words in ((less, r"w\['2.bias'\] is missing"), (more, r"w\['3.weight'\]: the module has no parameter of this name"),
                         (other, r"w\['0.bias'\] has shape \(1,\), but the parameter has \(2,\)")):
            for call in (lambda: problem.write(w), lambda: bilevel.hypergradient(problem, w=w, **options)):
                with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                    call()

    def test_tuning_lowers_the_loss_and_leaves_the_module_alone_until_write(self) -> None:
        before = {name: p.clone() for name, p in self.net.state_dict().items()}
        kept = list(self.net.parameters())
        result = bilevel.solve(
            self.problem, algorithm="double-loop", method="truncated", truncate=10, iterations=40, inner_steps=20,
            inner_rate=0.02, inner_optimizer="adam", outer_rate=0.1,
        )
        self.assertLess(result.history[-1]["outer_loss"], 0.5 * result.history[0]["outer_loss"])
        for name, tensor in self.net.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]))
        self.assertTrue(all(a is b for a, b in zip(kept, self.net.parameters())))
        self.problem.write(result.w)
        with torch.no_grad():
            self.assertAlmostEqual(self.outer(self.net, result.x).item(), result.outer_loss, places=5)

    def test_running_statistics_and_dropout_leave_no_trace(self) -> None:
        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        rows = torch.randn(40, 3)
        problem = bilevel.ModuleProblem(
            net, outer=lambda net, x, r: net(r).square().mean(),
            inner=lambda net, x, r: (net(r) - 1).square().mean() + x.exp() * sum(p.square().sum() for p in net.parameters()),
            x=torch.tensor(-3.0), inner_data=rows, outer_data=rows,
        )
        mean, state = net[1].running_mean.clone(), torch.get_rng_state()
        options = {"algorithm": "stocbio", "iterations": 3, "inner_batch": 10, "outer_batch": 10, "inner_rate": 0.01}
        first, second = bilevel.solve(problem, **options), bilevel.solve(problem, **options)
        self.assertTrue(torch.equal(net[1].running_mean, mean))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertTrue(torch.equal(first.x, second.x))  # dropout draws from the batches' seeds
        self.assertEqual(first.x.shape, ())

    def test_the_weights_of_a_recurrent_layer_are_those_of_w(self) -> None:
        class Last(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm, self.head = torch.nn.LSTM(1, 3, batch_first=True), torch.nn.Linear(3, 1)

            def forward(self, t):
                return self.head(self.lstm(t)[0][:, -1])

        net, rate = Last().double(), 0.1
        series = torch.linspace(-1, 1, 20, dtype=torch.double).view(5, 4, 1)
        target = series.sum(1)
        weights = list(net.lstm._flat_weights)

        def inner(net, x):
            return (net(series) - target).square().mean() + x.exp() * sum(p.square().sum() for p in net.parameters())

        def outer(net, x):
            return (net(series + 0.1) - target).square().mean()

        problem = bilevel.ModuleProblem(net, outer=outer, inner=inner, x=torch.tensor(-2.0, dtype=torch.double))
        found = bilevel.hypergradient(problem, method="reverse", inner_steps=1, inner_rate=rate)
        self.assertTrue(all(a is b for a, b in zip(net.lstm._flat_weights, weights)))  # the module is as it was

        def after_a_step(x: float):  # by hand, on a copy whose parameters are moved
            moved = copy.deepcopy(net)
            gradients = torch.autograd.grad(inner(moved, torch.tensor(x, dtype=torch.double)), list(moved.parameters()))
            with torch.no_grad():
                for p, g in zip(moved.parameters(), gradients):
                    p -= rate * g
            return outer(moved, None).item()

        difference = (after_a_step(-2 + 1e-4) - after_a_step(-2 - 1e-4)) / 2e-4
        self.assertAlmostEqual(found.value.item(), difference, delta=1e-6 * abs(difference))

    def test_a_module_without_parameters_is_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "no parameter that requires a gradient"):
            bilevel.ModuleProblem(torch.nn.Tanh(), outer=lambda n, x: x, inner=lambda n, x: x)


if __name__ == "__main__":
    unittest.main()
