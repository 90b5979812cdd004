"""scikit-learn's own checks of estimators, on feature vectors."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.documents import DOCS, table_rows

from tcm.estimator.estimator import TCMClassifier

pytestmark = pytest.mark.filterwarnings("ignore:X has no samples of the target")
# The checks that do not apply, with the reason; docs/scikit-learn.md lists them too.
DO_NOT_APPLY = {"check_classifiers_classes": "it uses -1 as a class, which here marks samples of the target"}


@parametrize_with_checks(
    [TCMClassifier(steps=20, device="cpu")], expected_failed_checks=lambda _: DO_NOT_APPLY, xfail_strict=True
)
def test_it_is_an_estimator_as_scikit_learn_checks_it(estimator: TCMClassifier, check: Callable[[Any], None]):
    check(estimator)


@pytest.mark.parametrize("names", [["one", "two", "three"], np.array(["one", "two", "three"], dtype=object), [3, 5, 9]])
def test_what_the_other_check_is_about_holds_for_labels_but_minus_one(names: Any):
    rng = np.random.default_rng(0)
    places = rng.integers(0, 3, 60)
    samples = 5 * np.eye(3)[places] + rng.normal(0, 0.1, (60, 3))
    labels = np.asarray(names)[places]
    estimator = TCMClassifier(steps=20, device="cpu").fit(samples, labels)
    assert estimator.classes_.tolist() == sorted(names)
    assert np.array_equal(estimator.predict(samples), labels)


def test_the_page_lists_the_checks_that_do_not_apply():
    rows = [row for row in table_rows((DOCS / "scikit-learn.md").read_text()) if row[0].startswith("`check_")]
    assert {re.sub("`", "", row[0]) for row in rows} - {"check_array_api_input"} == DO_NOT_APPLY.keys()
