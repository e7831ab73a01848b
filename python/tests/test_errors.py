"""What goes wrong in a user's functions and options, and what Python is told of it."""

from __future__ import annotations

import pickle
import traceback
import unittest

import bilevel  # before torch: it chooses the BLAS kernels
import torch


def problem(inner=None, outer=None) -> bilevel.Problem:
    return bilevel.Problem(
        outer=outer or (lambda x, w: w.square().sum()),
        inner=inner or (lambda x, w: (w - x).square().sum()),
        x=torch.ones(3), w=torch.zeros(3),
    )


class Exceptions(unittest.TestCase):
    def test_they_come_back_from_other_processes(self) -> None:
        for kind in (bilevel.RunFailed, bilevel.Interrupted):
            back = pickle.loads(pickle.dumps(kind("why", {"loss": 1.0})))
            self.assertEqual((type(back), str(back), back.result), (kind, "why", {"loss": 1.0}))


class Functions(unittest.TestCase):
    def test_an_exception_keeps_its_type_and_traceback_and_names_the_function(self) -> None:
        def my_loss(x, w):
            raise LookupError("no such example")

        try:
            bilevel.hypergradient(problem(inner=my_loss))
            self.fail("nothing was raised")
        except LookupError as error:  # assertRaises would drop the traceback
            caught = error
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.assertIn("in my_loss", text)  # the frame in which it was raised
        self.assertIn("no such example", text)
        if hasattr(caught, "__notes__"):
            self.assertRegex(caught.__notes__[0], r"raised in inner \(my_loss, test_errors.py:\d+\), which bilevel called")

    def test_what_a_loss_may_return_wrong_is_named(self) -> None:
        cases = [
            (lambda x, w: 1.0, TypeError, r"inner \(<lambda>, test_errors.py:\d+\) must return a torch.Tensor with one "
             r"element, but returned float: .* leave .item\(\) out"),
            (lambda x, w: w - x, ValueError, r"must return a scalar, but returned a tensor of shape \(3\): take its mean or sum"),
            (lambda x, w: (w - x).square().sum().double(), ValueError, "returned torch.float64, but w is torch.float32"),
            (lambda x, w: (w - x).square().sum().to("meta"), ValueError, "returned a tensor on meta, but w is on cpu"),
            (lambda x, w: (w - x).square().sum().reshape(1).to_sparse(), ValueError, "layout torch.sparse_coo: it must be dense"),
            (lambda x, w: (w - x).square().sum() / 0, bilevel.NotFiniteError, r"returned inf: its input has \|w\| = 0"),
            (lambda x, w: (w - x).square().sum() * float("nan"), bilevel.NotFiniteError, "returned nan"),
            (lambda x, w: (w.detach() - x).square().sum(), ValueError, "inner_loss does not depend on w"),
            (lambda x, w: None, TypeError, "but returned NoneType"),
        ]
        for inner, kind, words in cases:
            with self.subTest(words=words), self.assertRaisesRegex(kind, words):
                bilevel.hypergradient(problem(inner=inner))

    def test_a_loss_that_lost_its_x_is_not_a_silent_zero(self) -> None:
        with self.assertRaisesRegex(ValueError, "inner_loss does not depend on x"):
            bilevel.hypergradient(problem(inner=lambda x, w: (w - 1).square().sum()))

    def test_an_exception_in_a_backward_keeps_its_type_and_traceback(self) -> None:
        class Fragile(torch.autograd.Function):
            @staticmethod
            def forward(ctx, w):
                return w.clone()

            @staticmethod
            def backward(ctx, gradient):
                raise LookupError("no such gradient")

        broken = problem(inner=lambda x, w: (Fragile.apply(w) - x).square().sum())
        for call in (lambda: bilevel.hypergradient(broken), lambda: bilevel.solve(broken, iterations=3, inner_rate=0.1)):
            try:
                call()
                self.fail("nothing was raised")
            except LookupError as error:  # assertRaises would drop the traceback
                text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            self.assertIn("no such gradient", text)
            self.assertIn("in backward", text)
            self.assertIn("test_errors.py", text)

    def test_a_run_that_fails_keeps_what_it_found(self) -> None:
        calls = []

        def inner(x, w):
            calls.append(1)
            return (w - x).square().sum() * (float("nan") if len(calls) > 200 else 1)

        with self.assertRaisesRegex(bilevel.RunFailed, r"inner \(inner, test_errors.py:\d+\) returned nan") as caught:
            bilevel.solve(problem(inner=inner), iterations=50, inner_steps=5, inner_rate=0.1)
        result = caught.exception.result
        self.assertEqual(result.status, "failed")
        self.assertGreater(result.iterations, 3)
        self.assertTrue(torch.isfinite(result.x).all())
        self.assertGreater(len(result.history), 0)


class Options(unittest.TestCase):
    def test_mistakes_are_named_as_python_names_them(self) -> None:
        p = problem()
        cases = [
            (dict(method="cq"), ValueError, "method = cq: choose from exact, one-step"),
            (dict(method="cg", term=3), TypeError, r"hypergradient\(\) got an unexpected keyword argument 'term'; did you mean 'terms'\?"),
            (dict(method="cg", terms=-1), ValueError, "^terms = -1: must be at least 0"),
            (dict(method="cg", terms=2.5), TypeError, "^terms must be a whole number, not float"),
            (dict(method="cg", terms=True), TypeError, "^terms must be a whole number, not bool"),
            (dict(method="cg", damping="high"), TypeError, "^damping must be a number, not str"),
            (dict(method="cg", damping=float("nan")), ValueError, "^damping = nan: must be"),
            (dict(method="cg", error_bound=1), TypeError, "^error_bound must be True or False, not int"),
            (dict(method="cg", truncate=3), ValueError, "^truncate has no effect with method = cg. Leave it out"),
            (dict(method="reverse"), ValueError, "method = reverse differentiates the inner steps: give inner_steps and inner_rate"),
            (dict(method="cg", inner_steps=5), ValueError, "^inner_steps = 5 needs inner_rate"),
            (dict(method="neumann"), ValueError, "^method = neumann needs linear_rate or inner_rate"),
            (dict(method="cg", inner_rate=0.1), ValueError, "^inner_rate has no effect with inner_steps = 0"),
            (dict(method="neumann", inner_rate=0.1, linear_rate=0.1), ValueError, "^inner_rate has no effect with inner_steps = 0"),
            (dict(method=3), TypeError, "method must be a name or a bilevel.Estimator, not int"),
        ]
        for given, kind, words in cases:
            with self.subTest(given=given), self.assertRaisesRegex(kind, words):
                bilevel.hypergradient(p, **given)

    def test_options_of_jobs(self) -> None:
        with self.assertRaisesRegex(TypeError, r"solve\(\) got an unexpected keyword argument 'iteration'; did you mean 'iterations'\?"):
            bilevel.solve("ridge", iteration=3)
        with self.assertRaisesRegex(bilevel.OptionError, "inner_rate = 0: must be .*above 0"):
            bilevel.solve("ridge", inner_rate=0)
        with self.assertRaisesRegex(ValueError, "problem = ridg: choose from"):
            bilevel.solve("ridg")
        with self.assertRaisesRegex(ValueError, "a user-defined problem does not take dtype"):
            bilevel.solve(problem(), dtype="float")
        with self.assertRaises(FileNotFoundError):
            bilevel.clean("/nowhere/train.csv")
        with self.assertRaisesRegex(FileNotFoundError, "^/nowhere/run.json: cannot be opened: No such file"):
            bilevel.diagnose(at="/nowhere")
        with self.assertRaisesRegex(RuntimeError, "resume = /nowhere"):
            bilevel.solve("ridge", resume="/nowhere")

    def test_a_function_of_the_wrong_arguments(self) -> None:
        with self.assertRaisesRegex(TypeError, r"outer \(<lambda>, test_errors.py:\d+\) must take two arguments .*: it takes 1"):
            bilevel.Problem(outer=lambda w: w, inner=lambda x, w: w)
        with self.assertRaisesRegex(TypeError, "inner must be a function, not int"):
            bilevel.Problem(outer=lambda x, w: w, inner=3)
        with self.assertRaisesRegex(TypeError, "w is missing"):
            bilevel.hypergradient(bilevel.Problem(outer=lambda x, w: w, inner=lambda x, w: w), torch.zeros(2))


if __name__ == "__main__":
    unittest.main()
