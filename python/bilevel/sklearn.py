"""Estimators by scikit-learn's conventions: softmax regression whose labels are cleaned, or whose regularisers are tuned.

    from bilevel.sklearn import CleaningClassifier
    model = CleaningClassifier().fit(X, y)
    model.predict(X_test), model.suspects_
"""

from __future__ import annotations

from typing import Any, Optional

import numpy
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.extmath import safe_sparse_dot, softmax
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y

from . import clean, tune
from ._result import Result


def _check_names(model: Any, X: Any, reset: bool) -> None:
    """Keeps the names of a frame's columns, or refuses a frame whose names or order are others, as scikit-learn does."""
    try:
        from sklearn.utils.validation import _check_feature_names
    except ImportError:  # before 1.6 it is a method
        model._check_feature_names(X, reset=reset)
    else:
        _check_feature_names(model, X, reset=reset)


class _LinearClassifier(ClassifierMixin, BaseEstimator):
    """What both have in common: X W + b, and a softmax of it."""

    def _checked(self, X: Any, y: Any) -> tuple[Any, Any]:
        _check_names(self, X, reset=True)
        X, y = check_X_y(X, y, accept_sparse="csr", dtype=(numpy.float64, numpy.float32), estimator=self, y_numeric=False)
        check_classification_targets(y)
        self.n_features_in_ = X.shape[1]
        self.classes_ = numpy.unique(y)
        return X, y

    def _folds(self, y: Any) -> int:
        """Not more than there are examples for."""
        if len(y) < 4:
            raise ValueError(f"n_samples={len(y)}: held-out examples need at least 4 samples")
        return max(2, min(self.folds, len(y) // 2))  # type: ignore[attr-defined]

    def _take(self, weights: Any) -> None:
        weights = numpy.asarray(weights, dtype=numpy.float64)
        self.coef_ = weights[:-1].T
        self.intercept_ = weights[-1]

    def _take_single_class(self) -> None:
        self.coef_ = numpy.zeros((1, self.n_features_in_))
        self.intercept_ = numpy.zeros(1)
        self.result_: Optional[Result] = None

    def decision_function(self, X: Any) -> Any:
        """The scores X W + b, one column a class; with two classes the second's lead alone."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: Any) -> Any:
        check_is_fitted(self)
        _check_names(self, X, reset=False)
        X = check_array(X, accept_sparse="csr", dtype=(numpy.float64, numpy.float32), estimator=self)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        return safe_sparse_dot(X, self.coef_.T, dense_output=True) + self.intercept_

    def predict_proba(self, X: Any) -> Any:
        return softmax(self._scores(X))

    def predict(self, X: Any) -> Any:
        best = self._scores(X).argmax(axis=1)  # first: it says where nothing was fitted
        return self.classes_[best]

    def _more_tags(self) -> dict[str, Any]:
        return {"requires_fit": True}


class CleaningClassifier(_LinearClassifier):
    """Softmax regression on labels some of which are wrong, found by a model of how labels go wrong (bilevel.clean).

    folds: of the examples, each of which is judged by a fit that has not seen it.
    standardize: whether columns are brought to one scale for the fit; the model is in the user's units.
    random_state: seed of the folds.

    After fit: coef_, intercept_, classes_; label_weights_, the probability that each given label is right; suspects_,
    the positions of labels that are probably wrong, the most suspect first; suggested_labels_; result_, all of clean's.
    """

    def __init__(self, *, folds: int = 5, standardize: bool = True, random_state: int = 0) -> None:
        self.folds = folds
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "CleaningClassifier":
        X, y = self._checked(X, y)
        if len(self.classes_) == 1:
            self._take_single_class()
            self.label_weights_ = numpy.ones(len(y))
            self.suspects_, self.suggested_labels_ = numpy.zeros(0, dtype=numpy.int64), y.copy()
            return self
        result: Result = clean(
            train=X, train_labels=y, by="noise-model", folds=self._folds(y), no_standardize=not self.standardize,
            seed=self.random_state, dtype="double",
        )
        self._take(result.model_weights)
        self.label_weights_ = result.weights.numpy()
        self.suspects_ = numpy.asarray(result.suspects, dtype=numpy.int64)
        self.suggested_labels_ = self.classes_[result.suggested.numpy()]
        self.result_ = result
        return self


class TunedLogisticRegression(_LinearClassifier):
    """Softmax regression with one regulariser per feature, tuned on held-out examples (bilevel.tune).

    folds: how often examples are held out in turn.
    standardize: whether columns are brought to one scale for the fit; the model is in the user's units.
    random_state: seed of the folds.

    After fit: coef_, intercept_, classes_; regularizers_, one per feature; result_, all that bilevel.tune gives.
    """

    def __init__(self, *, folds: int = 5, standardize: bool = True, random_state: int = 0) -> None:
        self.folds = folds
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "TunedLogisticRegression":
        X, y = self._checked(X, y)
        if len(self.classes_) == 1:
            self._take_single_class()
            self.regularizers_ = numpy.ones(self.n_features_in_)
            return self
        result: Result = tune(
            train=X, train_labels=y, by="held-out", folds=self._folds(y), no_standardize=not self.standardize,
            seed=self.random_state, dtype="double",
        )
        self._take(result.model_weights)
        self.regularizers_ = result.x.exp().numpy()
        self.result_ = result
        return self
