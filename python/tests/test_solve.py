"""bilevel.solve, check, diagnose and compare, on problems of Python's and of the library's."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest

import bilevel  # before torch and numpy: it chooses the BLAS kernels that the program runs on
import numpy
import torch

from closed_forms import Quadratic, Ridge, relative

PROGRAM = os.environ.get("BILEVEL_PROGRAM", "")


class Solve(unittest.TestCase):
    def test_every_algorithm_lowers_the_outer_loss_of_a_python_problem(self) -> None:
        known = Ridge()
        for algorithm in bilevel.algorithms():
            if algorithm == "darts-first-order":  # f has no x of its own here
                continue
            with self.subTest(algorithm=algorithm):
                result = bilevel.solve(known.problem(), algorithm=algorithm, iterations=30, records=2)
                self.assertEqual(result.status, "finished")
                self.assertEqual(result.iterations, 30)
                self.assertEqual(result.x.shape, known.x.shape)
                self.assertLess(result.history[-1]["outer_loss"], result.history[0]["outer_loss"])

    def test_a_python_problem_gives_the_bits_of_the_same_problem_by_name(self) -> None:
        # The same losses, differentiated by the same calls: mlp has no closed form.
        named = bilevel.problem("mlp", seed=3)
        own = bilevel.Problem(outer=named.outer, inner=named.inner, x=named.x, w=named.w, inner_rate=named.inner_rate,
                              inner_steps=named.inner_steps)
        options = {"seed": 3, "methods": ["reverse", "truncated", "minres"], "inner_steps": 5, "curvature": "hessian"}
        by_name, by_python = bilevel.check("mlp", **options), bilevel.check(own, **options)
        self.assertEqual(set(by_name.hypergradients), set(options["methods"]))
        for method, value in by_name.hypergradients.items():
            self.assertTrue(torch.equal(value, by_python.hypergradients[method]), method)

    @unittest.skipUnless(PROGRAM, "the program is not built")
    def test_numbers_are_the_programs_to_the_bit(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for algorithm in ("aid-cg", "stocbio", "soba"):
                with self.subTest(algorithm=algorithm):
                    out = f"{folder}/{algorithm}"
                    options = {"problem": "hyper-cleaning", "algorithm": algorithm, "iterations": 10, "seed": 1, "threads": 1}
                    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
                    printed = subprocess.run(
                        [PROGRAM, "solve", *flags, "--out", out, "--json", "--quiet"], check=True, capture_output=True
                    ).stdout
                    result = bilevel.solve(**options)
                    self.assertTrue(numpy.array_equal(numpy.load(f"{out}/x.npy"), result.x.numpy()))
                    self.assertTrue(numpy.array_equal(numpy.load(f"{out}/w.npy"), result.w.numpy()))
                    by_program = json.loads(printed)
                    self.assertEqual(by_program["outer_loss"], result.outer_loss)
                    self.assertEqual(by_program["counts"], result.counts)

    def test_shaped_points_come_back_shaped(self) -> None:
        problem = bilevel.Problem(
            outer=lambda x, w: (w["a"] - 1).square().sum(),
            inner=lambda x, w: (w["a"] - x).square().sum() + 0.1 * w["b"].square().sum(),
            x=torch.zeros(2, 2), w={"a": torch.zeros(2, 2), "b": torch.ones(3)},
        )
        result = bilevel.solve(problem, iterations=100, outer_rate=0.1)
        self.assertLess((result.x - 1).abs().max().item(), 0.05)
        self.assertEqual(list(result.w), ["a", "b"])
        self.assertEqual(result.w["a"].shape, (2, 2))

    def test_dicts_are_matched_by_their_keys(self) -> None:
        def project(x):
            return {"b": x["b"].clamp(max=0.5), "a": x["a"]}  # another order

        problem = bilevel.Problem(
            outer=lambda x, w: (w - torch.tensor([1.0, 2.0])).square().sum(),
            inner=lambda x, w: (w - torch.cat([x["a"], x["b"]])).square().sum(),
            x={"a": torch.zeros(1), "b": torch.zeros(1)}, w=torch.zeros(2), project=project,
        )
        result = bilevel.solve(problem, iterations=200, outer_rate=0.1)
        self.assertEqual(list(result.x), ["a", "b"])
        self.assertLess(abs(result.x["a"].item() - 1), 0.05)
        self.assertEqual(result.x["b"].item(), 0.5)
        for wrong, words in (({"a": torch.zeros(1)}, r"what project\(\) returned\['b'\] is missing"),
                             ({"a": torch.zeros(1), "b": torch.zeros(1), "c": torch.zeros(1)}, r"\['c'\] is unknown"),
                             ({"a": torch.zeros(1), "b": torch.zeros(2)}, r"\['b'\] has shape \(2\), but the problem's has \(1\)")):
            broken = bilevel.Problem(lambda x, w: w.square().sum(), lambda x, w: (w - x["a"] - x["b"]).square().sum(),
                                     x={"a": torch.zeros(1), "b": torch.zeros(1)}, w=torch.zeros(2), project=lambda x: wrong)
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                bilevel.solve(broken, iterations=2)

    def test_keys_of_a_dict_stay_what_they_are(self) -> None:
        problem = bilevel.Problem(lambda x, w: w[0].square().sum(), lambda x, w: (w[0] - x).square().sum() + w[1].square().sum(),
                                  x=torch.ones(2), w={0: torch.zeros(2), 1: torch.zeros(3)})
        self.assertEqual(list(bilevel.hypergradient(problem, terms=5).w), [0, 1])

    def test_minibatches_by_rows_by_a_function_and_by_index_are_the_same(self) -> None:
        known = Ridge()
        rows = (known.X, known.y)

        def inner(x, w, data):
            X, y = data
            return 0.5 * (X @ w - y).square().mean() + 0.5 * (x.exp() * w.square()).sum() / 30

        def by_index(x, w, batch):
            return inner(x, w, (batch.rows(known.X), batch.rows(known.y)))

        seen = []

        def draw(batch):
            seen.append(None if batch.is_full else len(batch.index))
            return batch.rows(known.X), batch.rows(known.y)

        options = {"algorithm": "stocbio", "iterations": 5, "inner_batch": 10, "inner_rate": 0.1}
        problems = [
            bilevel.Problem(known.outer, inner, x=known.x, w=known.w, inner_data=rows),
            bilevel.Problem(known.outer, inner, x=known.x, w=known.w, inner_data=draw, inner_samples=30),
            bilevel.Problem(known.outer, by_index, x=known.x, w=known.w, inner_samples=30),
        ]
        results = [bilevel.solve(problem, **options) for problem in problems]
        self.assertIn(10, seen)
        for other in results[1:]:
            self.assertTrue(torch.equal(results[0].x, other.x))
            self.assertEqual(results[0].counts, other.counts)

    def test_progress_metrics_and_projection(self) -> None:
        known, told = Ridge(), []
        problem = bilevel.Problem(
            known.outer, known.inner, x=known.x, w=known.w, project=lambda x: x.clamp(max=0.2),
            metrics=lambda x, w: {"largest": x.max().item()},
        )
        result = bilevel.solve(problem, iterations=20, outer_rate=0.5, progress=told.append)
        self.assertLessEqual(result.x.max().item(), 0.2)
        self.assertEqual(result.history[-1]["largest"], result.x.max().item())
        self.assertEqual((told[-1]["job"], told[-1]["step"], told[-1]["total"]), ("solve", 20, 20))

    def test_a_run_in_a_folder_is_resumed_to_the_same_bits(self) -> None:
        known = Ridge()
        whole = bilevel.solve(known.problem(), iterations=20)
        with tempfile.TemporaryDirectory() as folder:
            calls = []

            def stop(step):
                calls.append(step)
                if step["step"] >= 8:
                    os.kill(os.getpid(), __import__("signal").SIGINT)

            with self.assertRaises(KeyboardInterrupt) as caught:
                bilevel.solve(known.problem(metrics=_slow), iterations=20, out=f"{folder}/run", progress=stop)
            self.assertEqual(caught.exception.result.status, "interrupted")
            self.assertIn(f"resume='{folder}/run'", str(caught.exception))
            self.assertLess(caught.exception.result.iterations, 20)
            result = bilevel.solve(known.problem(metrics=_slow), resume=f"{folder}/run")
            self.assertEqual(result.iterations, 20)
            self.assertTrue(torch.equal(whole.x, result.x))
            with self.assertRaisesRegex(ValueError, "resume = .* with iterations: a resumed run keeps its options"):
                bilevel.solve(known.problem(), resume=f"{folder}/run", iterations=30)


def _slow(x, w):
    __import__("time").sleep(0.06)  # steps are told twenty times a second
    return {}


class OwnAlgorithm(unittest.TestCase):
    class Alternating(bilevel.Algorithm):
        name = "alternating"
        inner_rate = 0.02

        def step(self, oracle, state, batches):
            g = oracle.linearize(state.x, state.w, batches.inner("step"))
            f = oracle.outer_gradients(state.x, state.w, batches.outer("loss"))
            v = state["v"] if "v" in state else torch.zeros_like(state.w)
            state["v"] = v - self.inner_rate * (g.hessian(v) - f.w)
            direction = f.x - g.cross(v)
            state.w = state.w - self.inner_rate * g.gradient()
            state.step_outer(direction)
            return direction

    def test_it_is_soba(self) -> None:
        known = Ridge()
        own = bilevel.solve(known.problem(), algorithm=self.Alternating(), iterations=50, outer_rate=0.01, outer_optimizer="sgd")
        soba = bilevel.solve(known.problem(), algorithm="soba", iterations=50, inner_rate=0.02, outer_rate=0.01, outer_optimizer="sgd")
        self.assertEqual(own.algorithm, "alternating")
        self.assertLess(relative(own.x, soba.x), 1e-12)
        self.assertEqual(own.counts, soba.counts)

    def test_its_run_has_the_files_and_the_result_of_any_other(self) -> None:
        known = Ridge()
        options = {"iterations": 10, "outer_rate": 0.01, "outer_optimizer": "sgd"}
        with tempfile.TemporaryDirectory() as folder:
            own = bilevel.solve(known.problem(), algorithm=self.Alternating(), out=f"{folder}/own", **options)
            soba = bilevel.solve(known.problem(), algorithm="soba", inner_rate=0.02, out=f"{folder}/soba", **options)
            self.assertEqual(sorted(os.listdir(f"{folder}/own")), sorted(os.listdir(f"{folder}/soba")))
            self.assertEqual(set(own), set(soba))
            self.assertEqual(own.inner_rate, 0.02)
            self.assertTrue(numpy.array_equal(numpy.load(f"{folder}/own/x.npy"), own.x.numpy()))
            self.assertTrue(numpy.array_equal(numpy.load(f"{folder}/own/w.npy"), own.w.numpy()))
            with open(f"{folder}/own/config.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file)["effective"]["algorithm"], "alternating")
            with self.assertRaisesRegex(ValueError, "the state is one of alternating, not of aid-cg"):
                bilevel.solve(known.problem(), resume=f"{folder}/own")

    def test_what_it_would_ignore_is_refused(self) -> None:
        class WithoutRate(bilevel.Algorithm):
            name = "without-rate"

            def step(self, oracle, state, batches):
                return torch.zeros_like(state.x)

        class Mine(bilevel.Estimator):
            name = "mine"

            def compute(self, oracle, request):
                return torch.zeros_like(request.x)

        cases = [
            (dict(algorithm=self.Alternating(), terms=3), "terms has no effect with alternating: give it to alternating when it is made"),
            (dict(algorithm=self.Alternating(), inner_steps=3), "inner_steps has no effect with alternating"),
            (dict(algorithm=self.Alternating(), method="cg"), "method has no effect with alternating"),
            (dict(algorithm=self.Alternating(), accuracy=0.1), "accuracy = 0.1 has no effect here; only method = auto uses it"),
            (dict(algorithm=self.Alternating(), on_failure="backtrack"), "on_failure = backtrack: alternating is user-defined"),
            (dict(algorithm=self.Alternating(), outer_optimizer="adam", outer_momentum=0.5), "outer_momentum has no effect"),
            (dict(algorithm=WithoutRate(), inner_rate=0.1), "inner_rate has no effect with without-rate"),
            (dict(method=Mine(), terms=3), "terms has no effect with mine"),
            (dict(method=Mine(), inner_momentum=0.5), "inner_momentum has no effect with double-loop and inner_optimizer = gd"),
            (dict(method=Mine(), algorithm="soba"), "algorithm = soba does not take a user-defined estimator"),
        ]
        for given, words in cases:
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                bilevel.solve(Ridge().problem(), iterations=2, **given)

    def test_its_inner_rate_can_be_given_to_solve(self) -> None:
        mine = self.Alternating()
        options = {"iterations": 5, "outer_rate": 0.01, "outer_optimizer": "sgd", "inner_rate": 0.01}
        own = bilevel.solve(Ridge().problem(), algorithm=mine, **options)
        self.assertLess(relative(own.x, bilevel.solve(Ridge().problem(), algorithm="soba", **options).x), 1e-12)
        self.assertEqual((own.inner_rate, mine.inner_rate), (0.01, 0.02))

    def test_an_estimator_in_a_double_loop(self) -> None:
        class ByCg(bilevel.Estimator):
            name = "my-exact"

            def compute(self, oracle, request):
                f = oracle.outer_gradients(request.x, request.w, request.outer_batch)
                g = oracle.linearize(request.x, request.w)
                H = torch.stack([g.hessian(e) for e in torch.eye(len(request.w), dtype=request.w.dtype)])
                return f.x - g.cross(torch.linalg.solve(H, f.w))

        known = Ridge()
        options = {"algorithm": "double-loop", "iterations": 10, "outer_rate": 0.05, "outer_optimizer": "adam"}
        own = bilevel.solve(known.problem(), method=ByCg(), **options)
        exact = bilevel.solve(known.problem(), method="exact", **options)
        self.assertLess(relative(own.x, exact.x), 1e-9)

    def test_compare_runs_it_beside_others(self) -> None:
        result = bilevel.compare(
            Ridge().problem(convex=True), algorithms=["soba", self.Alternating()], seeds=[0], budget_calls=300
        )
        self.assertEqual([a["name"] for a in result.algorithms], ["soba", "alternating"])


class Check(unittest.TestCase):
    def test_all_estimators_are_measured_against_the_closed_form(self) -> None:
        known = Ridge()
        result = bilevel.check(known.problem(), inner_steps=300)
        self.assertEqual(set(result.hypergradients), set(bilevel.estimators()))
        self.assertLess(relative(result.implicit_reference, known.exact()), 1e-8)
        self.assertLess(relative(result.hypergradients["cg"], known.exact()), 1e-6)

    def test_own_estimators_have_rows(self) -> None:
        class Direct(bilevel.Estimator):
            name = "direct"

            def compute(self, oracle, request):
                return oracle.outer_gradients(request.x, request.w).x

        result = bilevel.check(Quadratic().problem(), methods=["cg", Direct()])
        self.assertEqual([row["name"] for row in result.methods], ["cg", "direct"])
        self.assertFalse(result.methods[1]["trusted"])

    def test_diagnose_recommends_what_reaches_the_accuracy(self) -> None:
        known = Quadratic()
        result = bilevel.diagnose(known.problem(convex=True), accuracy=1e-3)
        advice = result.recommendation
        self.assertTrue(advice["reaches"])
        self.assertEqual(result.suggested[0][0], "check")


if __name__ == "__main__":
    unittest.main()
