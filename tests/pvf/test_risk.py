"""The decomposition: reference numbers, the definition by loops, and what must not matter."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvf.risk import decompose
from tda_bias.types import InputError

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pvf_unqover.json").read_text())
FIELDS = {"r_x": "r", "r_x_p": "r_p", "r_x_v": "r_v"}


def preferences(seed: int, x: int = 3, contexts: int = 4, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=(x, contexts))


# -- bad input --


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (np.ones((2, 3)), r"shape \(x, context, class\)"),
        (np.ones((2, 3, 1)), "at least 2 classes"),
        (np.full((1, 1, 2), np.nan), "negative or undefined"),
        (np.array([[[1.5, -0.5]]]), "negative or undefined"),
        (np.full((2, 2, 2), 0.4), r"`p\[0, 0\]` must sum to 1; it sums to 0.8"),
    ],
)
def test_what_is_no_preference_is_refused(p, message):
    with pytest.raises(InputError, match=message):
        decompose(p)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context_weights": np.ones(3)}, r"`context_weights` must have the shape \(4,\)"),
        ({"context_weights": np.array([1, 1, 0, 1])}, "must be positive; number 2 is 0"),
        ({"context_weights": np.array([1, -1, 1, 1])}, "must be positive; number 1 is -1"),
        ({"x_weights": np.array([1, np.nan, 1])}, "must not be negative; number 1 is nan"),
        ({"x_weights": np.zeros(3)}, "`x_weights` are all 0"),
        ({"criterion": "l0.5"}, "`criterion` must be linf, l1, l2"),
        ({"criterion": "max"}, "got 'max'"),
        ({"scale": "both"}, "`scale` must be one of pcf, bvf; got 'both'"),
        ({"p_star": np.ones(3) / 3}, "`p_star` is defined for the scale bvf only"),
        ({"scale": "bvf", "p_star": np.array([0.5, 0.5, 0.0])}, "3 positive numbers that sum to 1"),
        ({"one_sided": True}, "`one_sided` is for 2 classes; got 3"),
    ],
)
def test_an_unusable_option_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        decompose(preferences(0), **options)


# -- reference numbers --


@pytest.mark.parametrize("case", GOLDEN["pvf_cases"], ids=lambda c: c["id"])
def test_the_decomposition_is_the_reference_one(case):
    given_, expected = case["input"], case["expected"]
    found = decompose(
        np.array(given_["p"]),
        context_weights=given_["w_c"],
        x_weights=given_["w_x"],
        criterion=given_["criterion"],
        scale=given_["scale"],
        p_star=given_["p_star"],
    )
    names = ["s", "J", "mean_p", "mean_s", "R", "R_p", "R_v", *FIELDS]
    for name in names:
        value = getattr(found, FIELDS.get(name, name))
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(found.context_weights[0], expected["w_c"], atol=1e-10)
    np.testing.assert_allclose(found.x_weights, expected["w_x"], atol=1e-10)


@pytest.mark.parametrize("case", GOLDEN["onesided_demo_cases"], ids=lambda c: c["id"])
def test_the_published_codes_variant_is_reproduced(case):
    weights = case["input"]["w_c"]
    found = decompose(np.array(case["input"]["p"]), context_weights=weights, one_sided=True)
    for x, expected in enumerate(case["expected"]):
        values = (found.r[x], found.r_p[x], found.r_v[x])
        names = ("overall_x2", "prejudice_x2", "volatility_x2")
        np.testing.assert_allclose(values, [expected[n] for n in names], atol=1e-10)


@pytest.mark.parametrize("case", GOLDEN["weight_cases"], ids=lambda c: c["id"])
def test_published_counts_have_the_known_effective_number(case):
    counts = np.array(case["counts"])
    found = decompose(preferences(0, contexts=len(counts)), context_weights=counts)
    np.testing.assert_allclose(found.context_weights[0], case["weights"], atol=1e-10)
    np.testing.assert_allclose(found.n_effective_contexts, case["n_eff"], atol=1e-10)


# -- the definition --


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from(["linf", "l1", "l2", "l3.5"]))
def test_the_decomposition_is_the_one_computed_by_loops(seed, classes, criterion):
    rng = np.random.default_rng(seed)
    p = preferences(seed, classes=classes)
    w_c, w_x = rng.random(4) + 0.1, rng.random(3) + 0.1
    found = decompose(p, context_weights=w_c, x_weights=w_x, criterion=criterion)
    k = float(criterion[1:])

    def size(s: list[float]) -> float:
        positive = [max(value, 0.0) for value in s]
        return max(positive) if k == np.inf else sum(v**k for v in positive) ** (1 / k)

    R = R_p = 0.0
    for x in range(3):
        s = [[(classes * v - 1) / (classes - 1) for v in p[x, c]] for c in range(4)]
        w = [value / sum(w_c) for value in w_c]
        r = sum(w[c] * size(s[c]) for c in range(4))
        r_p = size([sum(w[c] * s[c][y] for c in range(4)) for y in range(classes)])
        np.testing.assert_allclose([found.r[x], found.r_p[x]], [r, r_p], atol=1e-12)
        R += w_x[x] / sum(w_x) * r
        R_p += w_x[x] / sum(w_x) * r_p
    np.testing.assert_allclose([found.R, found.R_p, found.R_v], [R, R_p, R - R_p], atol=1e-12)


# -- properties --


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(["linf", "l1", "l2"]))
def test_risk_is_prejudice_plus_volatility_and_within_its_bounds(seed, classes, criterion):
    found = decompose(preferences(seed, classes=classes), criterion=criterion)
    np.testing.assert_allclose(found.r, found.r_p + found.r_v, atol=1e-12)
    np.testing.assert_allclose(found.R, found.R_p + found.R_v, atol=1e-12)
    assert (found.r_v >= 0).all()
    assert 0 <= found.R <= 1


@given(st.integers(0, 10_000), st.integers(2, 6), st.sampled_from(["linf", "l1", "l2"]))
def test_the_scales_differ_by_the_number_of_classes_less_one(seed, classes, criterion):
    p = preferences(seed, classes=classes)
    pcf, bvf = (decompose(p, criterion=criterion, scale=s) for s in ("pcf", "bvf"))
    for name in ("s", "J", "r", "r_p", "r_v", "R", "R_p", "R_v"):
        np.testing.assert_allclose(
            getattr(bvf, name), (classes - 1) * np.asarray(getattr(pcf, name)), atol=1e-12
        )


@given(st.integers(0, 10_000), st.randoms(use_true_random=False))
def test_the_order_of_words_contexts_and_classes_does_not_matter(seed, random):
    p = preferences(seed)
    w_c, w_x = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 2.0])
    x, c, y = (random.sample(range(n), n) for n in p.shape)
    plain = decompose(p, context_weights=w_c, x_weights=w_x)
    mixed = decompose(p[np.ix_(x, c, y)], context_weights=w_c[c], x_weights=w_x[x])
    np.testing.assert_allclose(
        [plain.R, plain.R_p, plain.R_v], [mixed.R, mixed.R_p, mixed.R_v], atol=1e-12
    )


@given(st.integers(0, 10_000), st.floats(0.1, 0.9), st.floats(0.01, 1000))
def test_scaled_counts_and_a_template_in_two_parts_change_nothing(seed, share, factor):
    p, w_c = preferences(seed), np.array([1.0, 2.0, 3.0, 4.0])
    plain = decompose(p, context_weights=w_c)
    parts = np.array([1.0 * share, 2.0, 3.0, 4.0, 1.0 * (1 - share)]) * factor
    split = decompose(np.concatenate([p, p[:, :1]], axis=1), context_weights=parts)
    np.testing.assert_allclose([plain.r, plain.r_p], [split.r, split.r_p], atol=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(["linf", "l1", "l2"]))
def test_a_preference_that_ignores_the_context_has_no_volatility(seed, criterion):
    p = np.repeat(preferences(seed, contexts=1), 5, axis=1)
    np.testing.assert_allclose(decompose(p, criterion=criterion).r_v, 0.0, atol=1e-12)


@given(st.integers(0, 10_000))
def test_two_classes_know_no_difference_of_norms(seed):
    p = preferences(seed, classes=2)
    found = [decompose(p, criterion=c).R for c in ("linf", "l1", "l2")]
    np.testing.assert_allclose(found, found[0], atol=1e-12)
    np.testing.assert_allclose(decompose(p).J, np.abs(2 * p[..., 0] - 1), atol=1e-12)


@given(st.integers(0, 10_000))
def test_the_one_sided_variant_has_half_the_volatility_and_the_same_prejudice(seed):
    p = preferences(seed, classes=2)
    full, half = decompose(p), decompose(p, one_sided=True)
    np.testing.assert_allclose(half.r_p, full.r_p, atol=1e-12)
    np.testing.assert_allclose(2 * half.r_v, full.r_v, atol=1e-12)


def test_a_model_that_is_its_own_standard_has_no_risk():
    p = np.tile([0.7, 0.2, 0.1], (2, 3, 1))
    found = decompose(p, scale="bvf", p_star=np.array([0.7, 0.2, 0.1]))
    np.testing.assert_allclose(found.R, 0.0, atol=1e-12)
