"""scikit-learn's conventions."""

from __future__ import annotations

import unittest

import bilevel  # noqa: F401  before numpy: it chooses the BLAS kernels
import numpy

try:
    from sklearn.utils.estimator_checks import check_estimator
except ImportError:
    raise unittest.SkipTest("scikit-learn is not installed (python3-sklearn)") from None

from bilevel.sklearn import CleaningClassifier, TunedLogisticRegression
from test_jobs import clouds


class Sklearn(unittest.TestCase):
    def test_conventions_hold(self) -> None:
        for estimator in (CleaningClassifier(), TunedLogisticRegression()):
            for one, check in check_estimator(estimator, generate_only=True):
                with self.subTest(estimator=type(estimator).__name__, check=check.func.__name__):
                    check(one)

    def test_cleaning_finds_wrong_labels_and_predicts_better_than_they_say(self) -> None:
        X, y, wrong = clouds()
        model = CleaningClassifier().fit(X, y)
        self.assertGreaterEqual(len(set(model.suspects_) & set(wrong)), 0.9 * len(wrong))
        truth = y.copy()
        truth[wrong] = 1 - truth[wrong]
        self.assertGreater((model.predict(X) == truth).mean(), 0.97)
        numpy.testing.assert_allclose(model.predict_proba(X).sum(1), 1)

    def test_columns_of_a_frame_are_not_mistaken_for_others(self) -> None:
        import pandas

        X, y, _ = clouds()
        frame = pandas.DataFrame(X, columns=["a", "b", "c"])
        for model in (CleaningClassifier(), TunedLogisticRegression()):
            model.fit(frame, y)
            self.assertEqual(list(model.feature_names_in_), ["a", "b", "c"])
            numpy.testing.assert_array_equal(model.predict(frame), model.classes_[model.predict_proba(frame).argmax(1)])
            with self.assertRaisesRegex(ValueError, "feature names"):
                model.predict(frame[["c", "a", "b"]])

    def test_tuning_keeps_names_of_classes(self) -> None:
        X, y, _ = clouds()
        model = TunedLogisticRegression(folds=3).fit(X, numpy.array(["no", "yes"])[y])
        self.assertEqual(list(model.classes_), ["no", "yes"])
        self.assertEqual(model.get_params(), {"folds": 3, "random_state": 0, "standardize": True})
        self.assertEqual(model.regularizers_.shape, (3,))


if __name__ == "__main__":
    unittest.main()
