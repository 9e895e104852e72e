"""The decomposition: reference numbers, the definition by loops, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pvf.risk import (
    decompose,
    finite_context_null,
    randomly_initialised_risk,
    reference_models,
)
from tda_bias.types import InputError
from tests.support.golden import GOLDEN

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
        ({"context_weights": np.ones(3)}, r"`context_weights` must have the shape \(3, 4\)"),
        ({"context_weights": np.array([1, -1, 1, 1])}, "`context_weights` must not be negative"),
        ({"x_weights": np.array([1, np.nan, 1])}, "`x_weights` must not be .*undefined"),
        ({"x_weights": np.zeros(3)}, "`x_weights` must not be .* all 0"),
        ({"criterion": "max"}, "`criterion` must be one of linf, l2, l1; got 'max'"),
        ({"scale": "both"}, "`scale` must be one of pcf, bvf; got 'both'"),
        ({"one_sided": True}, "`one_sided` is for 2 classes; got 3"),
    ],
)
def test_an_unusable_option_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        decompose(preferences(0), **options)


# -- reference numbers --


UNIFORM = [case for case in GOLDEN["pvf_cases"] if case["input"]["p_star"] is None]


@pytest.mark.parametrize("case", UNIFORM, ids=lambda c: c["id"])
def test_the_decomposition_is_the_reference_one(case):
    given_, expected = case["input"], case["expected"]
    found = decompose(
        np.array(given_["p"]),
        context_weights=given_["w_c"],
        x_weights=given_["w_x"],
        criterion=given_["criterion"],
        scale=given_["scale"],
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


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from(["linf", "l1", "l2"]))
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
def test_scales_differ_by_a_factor_and_risk_is_prejudice_plus_volatility(seed, classes, criterion):
    p = preferences(seed, classes=classes)
    pcf, bvf = (decompose(p, criterion=criterion, scale=s) for s in ("pcf", "bvf"))
    np.testing.assert_allclose(pcf.r, pcf.r_p + pcf.r_v, atol=1e-12)
    np.testing.assert_allclose(pcf.R, pcf.R_p + pcf.R_v, atol=1e-12)
    assert (pcf.r_v >= 0).all()
    assert 0 <= pcf.R <= 1
    for name in ("s", "J", "r", "r_p", "r_v", "R", "R_p", "R_v"):
        np.testing.assert_allclose(
            getattr(bvf, name), (classes - 1) * np.asarray(getattr(pcf, name)), atol=1e-12
        )


@given(
    st.integers(0, 10_000),
    st.randoms(use_true_random=False),
    st.floats(0.1, 0.9),
    st.floats(0.01, 1000),
)
def test_order_scaled_counts_and_a_template_in_two_parts_change_nothing(
    seed, random, share, factor
):
    p = preferences(seed)
    w_c, w_x = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 2.0])
    x, c, y = (random.sample(range(n), n) for n in p.shape)
    plain = decompose(p, context_weights=w_c, x_weights=w_x)
    mixed = decompose(p[np.ix_(x, c, y)], context_weights=w_c[c], x_weights=w_x[x])
    parts = np.array([1.0 * share, 2.0, 3.0, 4.0, 1.0 * (1 - share)]) * factor
    split = decompose(np.concatenate([p, p[:, :1]], axis=1), context_weights=parts, x_weights=w_x)
    for found in (mixed, split):
        np.testing.assert_allclose(
            [plain.R, plain.R_p, plain.R_v], [found.R, found.R_p, found.R_v], atol=1e-12
        )


@given(st.integers(0, 10_000))
def test_context_alone_makes_volatility_and_two_classes_know_one_norm_and_half_a_side(seed):
    p = preferences(seed, classes=2)
    same = np.repeat(p[:, :1], 5, axis=1)
    by_norm = [decompose(p, criterion=criterion) for criterion in ("linf", "l1", "l2")]
    for criterion, found in zip(("linf", "l1", "l2"), by_norm, strict=True):
        np.testing.assert_allclose(decompose(same, criterion=criterion).r_v, 0.0, atol=1e-12)
        np.testing.assert_allclose(found.J, np.abs(2 * p[..., 0] - 1), atol=1e-12)
    half = decompose(p, one_sided=True)
    np.testing.assert_allclose(half.r_p, by_norm[0].r_p, atol=1e-12)
    np.testing.assert_allclose(2 * half.r_v, by_norm[0].r_v, atol=1e-12)


# -- reference models --


@pytest.mark.parametrize("case", GOLDEN["random_init_expected"], ids=lambda c: f"K{c['K']}")
def test_closed_forms_are_the_reference_ones(case):
    for scale in ("pcf", "bvf"):
        for criterion in ("linf", "l1"):
            found = randomly_initialised_risk(case["K"], criterion=criterion, scale=scale)
            np.testing.assert_allclose(found, case[f"{criterion}_{scale}"], atol=1e-10)
        stereotyped = reference_models(case["K"], scale=scale)["stereotyped"]
        np.testing.assert_allclose(stereotyped[0], case[f"max_{scale}"], atol=1e-10)


@pytest.mark.parametrize("criterion", ["linf", "l1", "l2"])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_each_reference_row_is_what_such_a_model_scores(n_classes, criterion):
    rng = np.random.default_rng(0)
    x, contexts = 40, 4000
    one_hot = np.eye(n_classes)
    simulated = {
        "ideally unbiased": np.full((x, contexts, n_classes), 1 / n_classes),
        "stereotyped": one_hot[np.repeat(rng.integers(n_classes, size=(x, 1)), contexts, axis=1)],
        "randomly stereotyped": one_hot[rng.integers(n_classes, size=(x, contexts))],
        "randomly initialised": rng.dirichlet(np.ones(n_classes), size=(x, contexts)),
    }
    for name, expected in reference_models(n_classes, criterion=criterion).items():
        found = decompose(simulated[name], criterion=criterion)
        np.testing.assert_allclose([found.R, found.R_p, found.R_v], expected, atol=0.03)


def test_few_contexts_show_prejudice_where_there_is_none_and_more_show_less():
    """Two classes, ten equal contexts: sd of the mean of a uniform on [-1, 1], half normal."""
    drawn = finite_context_null(np.ones(10), 2, n_draws=40_000, rng=np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(), np.sqrt(2 / np.pi) / np.sqrt(3 * 10), atol=0.004)
    means = [
        finite_context_null(np.ones(n), 3, n_draws=2000, rng=np.random.default_rng(0)).mean()
        for n in (1, 10, 100)
    ]
    np.testing.assert_allclose(means[0], randomly_initialised_risk(3), atol=0.02)
    with pytest.raises(InputError, match="`n_classes` must be at least 2; got 1"):
        reference_models(1)
    assert means[0] > 2 * means[1] > 4 * means[2]
