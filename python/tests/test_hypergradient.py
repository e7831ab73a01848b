"""bilevel.hypergradient on problems of Python functions."""

from __future__ import annotations

import unittest

import bilevel  # before torch: it chooses the BLAS kernels
import torch
from closed_forms import Quadratic, Ridge, relative


class Hypergradient(unittest.TestCase):
    def test_every_implicit_estimator_gives_the_closed_form_at_the_solution(self) -> None:
        for known in (Quadratic(), Ridge()):
            w = known.solution()
            largest = torch.linalg.eigvalsh(torch.autograd.functional.hessian(lambda v: known.inner(known.x, v), w))[-1]
            options = {
                "exact": {}, "cg": {"terms": 20}, "minres": {"terms": 20}, "nystrom": {"terms": w.numel()},
                "neumann": {"terms": 2000, "linear_rate": 1 / largest},
                "fixed-point": {"terms": 2000, "linear_rate": 1 / largest},
            }
            for method, given in options.items():
                with self.subTest(problem=type(known).__name__, method=method):
                    found = bilevel.hypergradient(known.problem(), known.x, w, method=method, **given)
                    self.assertLess(relative(found.value, known.exact()), 1e-6)

    def test_every_unrolled_estimator_gives_the_closed_form_after_enough_steps(self) -> None:
        for known in (Quadratic(), Ridge()):
            largest = torch.linalg.eigvalsh(
                torch.autograd.functional.hessian(lambda v: known.inner(known.x, v), known.w)
            )[-1]
            for method in ("reverse", "reverse-sqrt", "reverse-binomial", "truncated", "forward"):
                with self.subTest(problem=type(known).__name__, method=method):
                    more = {"truncate": 200} if method == "truncated" else {}
                    found = bilevel.hypergradient(
                        known.problem(), known.x, known.w, method=method, inner_steps=300, inner_rate=1 / largest, **more
                    )
                    self.assertLess(relative(found.value, known.exact()), 1e-6)
                    self.assertLess(relative(found.w, known.solution()), 1e-6)

    def test_one_step_is_the_derivative_of_one_step_by_hand(self) -> None:
        known, rate = Ridge(), 0.01
        x = known.x.clone().requires_grad_(True)
        w = known.w.clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(known.inner(x, w), w, create_graph=True)
        by_hand = torch.autograd.grad(known.outer(x, w - rate * gradient), x)[0]
        found = bilevel.hypergradient(
            known.problem(), known.x, known.w, method="one-step", inner_steps=1, inner_rate=rate
        )
        self.assertLess(relative(found.value + 1e-30, by_hand + 1e-30), 1e-12)

    def test_status_counts_and_bound(self) -> None:
        known = Quadratic()
        found = bilevel.hypergradient(known.problem(), w=known.solution(), method="cg", terms=3, error_bound=True)
        self.assertEqual(found.status, "max_iterations")
        self.assertEqual(found.counts["hessian"], 3)
        self.assertEqual((found.counts["cross"], found.counts["outer_gradient"]), (1, 1))
        self.assertEqual(found.bound_kind, "estimated")
        self.assertGreaterEqual(found.bound, (found.value - known.exact()).norm().item())
        self.assertEqual(found["method"], "cg")
        self.assertAlmostEqual(found.outer_loss.item(), known.outer(known.x, known.solution()).item())
        with self.assertRaisesRegex(AttributeError, "the result has no 'vlaue'"):
            _ = found.vlaue
        self.assertIn("<table>", found._repr_html_())

    def test_tensors_cross_without_a_copy(self) -> None:
        seen = {}

        def inner(x, w):
            seen["x"], seen["w"] = x.data_ptr(), w.data_ptr()
            return (w - x).square().sum()

        x, w = torch.zeros(5), torch.ones(5)
        bilevel.hypergradient(bilevel.Problem(outer=lambda x, w: w.square().sum(), inner=inner), x, w)
        self.assertEqual(seen, {"x": x.data_ptr(), "w": w.data_ptr()})

    def test_shapes_lists_and_dicts_come_back_as_they_went_in(self) -> None:
        def problem(pick):
            return bilevel.Problem(
                outer=lambda x, w: sum((p - 1).square().sum() for p in pick(w)),
                inner=lambda x, w: sum((p - q).square().sum() + 0.1 * p.square().sum() for p, q in zip(pick(w), pick(x))),
            )

        a, b = torch.arange(6.0).reshape(2, 3), torch.ones(2)
        flat = bilevel.hypergradient(problem(lambda v: [v]), torch.cat([a.flatten(), b]), torch.zeros(8)).value
        shaped = bilevel.hypergradient(problem(lambda v: [v]), a, torch.zeros(2, 3)).value
        alone = bilevel.hypergradient(problem(lambda v: [v]), a.flatten(), torch.zeros(6)).value
        self.assertTrue(torch.equal(shaped, alone.reshape(2, 3)))
        for make in (list, tuple):
            both = bilevel.hypergradient(problem(lambda v: v), make([a, b]), [torch.zeros(2, 3), torch.zeros(2)]).value
            self.assertIs(type(both), make)
            self.assertTrue(torch.equal(both[0], flat[:6].reshape(2, 3)) and torch.equal(both[1], flat[6:]))
        named = bilevel.hypergradient(
            problem(lambda v: v.values()), {"a": a, "b": b}, {"a": torch.zeros(2, 3), "b": torch.zeros(2)}
        ).value
        self.assertEqual(list(named), ["a", "b"])
        self.assertTrue(torch.equal(named["b"], flat[6:]))

    def test_a_problem_known_by_name_gives_what_its_losses_differentiated_here_give(self) -> None:
        ridge = bilevel.problem("ridge")
        by_python = bilevel.Problem(outer=ridge.outer, inner=ridge.inner)
        w = torch.ones_like(ridge.w)  # at its start, 0, the hypergradient is 0
        for method in ("cg", "exact"):
            closed = bilevel.hypergradient(ridge, ridge.x, w, method=method)
            own = bilevel.hypergradient(by_python, ridge.x, w, method=method)
            self.assertLess(relative(own.value, closed.value), 1e-9)
            self.assertEqual({**own.counts, "samples": closed.counts["samples"]}, closed.counts)


class OwnEstimator(unittest.TestCase):
    def test_it_passes_through_the_same_door(self) -> None:
        class Exact(bilevel.Estimator):
            name = "by-hand"

            def compute(self, oracle, request):
                f = oracle.outer_gradients(request.x, request.w, request.outer_batch)
                g = oracle.linearize(request.x, request.w)
                rows = [g.hessian(e) for e in torch.eye(len(request.w), dtype=request.w.dtype)]
                v = torch.linalg.solve(torch.stack(rows), f.w)
                return {"value": f.x - g.cross(v), "solution": v, "status": "converged"}

        known = Ridge()
        found = bilevel.hypergradient(known.problem(), known.x, known.solution(), method=Exact())
        self.assertLess(relative(found.value, known.exact()), 1e-9)
        self.assertEqual((found.method, found.status), ("by-hand", "converged"))
        self.assertEqual(found.counts["hessian"], 5)

    def test_what_is_lent_ends_with_the_call(self) -> None:
        kept = []

        class Keeps(bilevel.Estimator):
            def compute(self, oracle, request):
                kept.append(oracle)
                return oracle.outer_gradients(request.x, request.w).x

        known = Quadratic()
        bilevel.hypergradient(known.problem(), method=Keeps())
        with self.assertRaisesRegex(RuntimeError, "valid only during one call"):
            kept[0].outer_gradients(known.x, known.w)

    def test_a_wrong_shape_is_named(self) -> None:
        class Wrong(bilevel.Estimator):
            name = "wrong"

            def compute(self, oracle, request):
                return request.w

        known = Quadratic()
        with self.assertRaisesRegex(ValueError, r"what wrong.compute\(\) returns must have 4 elements .* but has 6"):
            bilevel.hypergradient(known.problem(), method=Wrong())


if __name__ == "__main__":
    unittest.main()
