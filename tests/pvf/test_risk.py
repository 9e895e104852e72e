"""The decomposition and its intervals: reference numbers, the definition by loops, simulations."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pvf.risk import (
    decompose,
    finite_context_null,
    reference_models,
    reference_rows,
    risk_intervals,
    x_intervals,
)
from tda_bias.stats.clusters import cluster_mean, jackknife_mean
from tda_bias.types import InputError
from tests.support.golden import GOLDEN

FIELDS = {"r_x": "r", "r_x_p": "r_p", "r_x_v": "r_v"}
CRITERIA = ("linf", "l1", "l2", "l3", "l7")


def preferences(seed: int = 0, x: int = 3, contexts: int = 4, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=(x, contexts))


def of_model(risk):
    return np.array([risk.R, risk.R_p, risk.R_v])


@pytest.mark.parametrize(
    ("p", "weights", "message"),
    [
        (np.ones((2, 3)), {}, r"shape \(x, context, class\)"),
        (np.ones((2, 3, 1)), {}, "at least 2 classes"),
        (np.full((1, 1, 2), np.nan), {}, "negative or undefined"),
        (np.array([[[1.5, -0.5]]]), {}, "negative or undefined"),
        (np.full((2, 2, 2), 0.4), {}, r"`p\[0, 0\]` must sum to 1; it sums to 0.8"),
        (preferences(), {"context_weights": np.ones(3)}, r"must have the shape \(4,\)"),
        (preferences(), {"context_weights": np.array([1, -1, 1, 1])}, "must not be negative"),
        (preferences(), {"x_weights": np.array([1, np.nan, 1])}, "must not be .*undefined"),
        (preferences(), {"x_weights": np.zeros(3)}, "`x_weights` must not be .* all 0"),
        (preferences(), {"reference": np.ones(2) / 2}, r"shape \(3,\), \(3, 3\) or \(3, 4, 3\)"),
        (preferences(), {"reference": np.array([0.5, 0.5, 0.0])}, "shares above 0"),
        (preferences(), {"reference": np.array([0.5, 0.3, 0.2 + 2e-6])}, "`reference` must sum"),
        (preferences(), {"reference": np.full((3, 3), 0.3)}, r"`reference\[0\]` .* sums to 0.9"),
        (preferences(), {"criterion": "l0"}, "l1, l2, l3, .* or linf; got 'l0'"),
        (preferences(), {"criterion": "l2.5"}, "got 'l2.5'"),
        (preferences(), {"criterion": "max"}, "got 'max'"),
    ],
)
def test_what_is_no_preference_or_weight_is_refused(p, weights, message):
    with pytest.raises(InputError, match=message):
        decompose(p, **weights)


# -- reference numbers -----------------------------------------------------------------------------


UNIFORM = [case for case in GOLDEN["pvf_cases"] if case["input"]["p_star"] is None]


@pytest.mark.parametrize("case", UNIFORM, ids=lambda c: c["id"])
def test_the_decomposition_is_the_reference_one(case):
    given_, expected = case["input"], case["expected"]
    p = np.array(given_["p"])
    found = decompose(
        p,
        context_weights=given_["w_c"],
        x_weights=given_["w_x"],
        criterion=given_["criterion"],
    )
    factor = p.shape[2] - 1 if given_["scale"] == "bvf" else 1
    for name in ["s", "J", "mean_s", "R", "R_p", "R_v", *FIELDS]:
        value = factor * np.asarray(getattr(found, FIELDS.get(name, name)))
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(found.context_weights, expected["w_c"], atol=1e-10)
    np.testing.assert_allclose(found.x_weights, expected["w_x"], atol=1e-10)


@pytest.mark.parametrize("case", GOLDEN["onesided_demo_cases"], ids=lambda c: c["id"])
def test_the_published_codes_variant_has_as_much_prejudice_and_half_the_volatility(case):
    found = decompose(np.array(case["input"]["p"]), context_weights=case["input"]["w_c"])
    for x, expected in enumerate(case["expected"]):
        values = (found.r_p[x] + found.r_v[x] / 2, found.r_p[x], found.r_v[x] / 2)
        names = ("overall_x2", "prejudice_x2", "volatility_x2")
        np.testing.assert_allclose(values, [expected[n] for n in names], atol=1e-10)


@pytest.mark.parametrize("case", GOLDEN["weight_cases"], ids=lambda c: c["id"])
def test_published_counts_have_the_known_effective_number(case):
    counts = np.array(case["counts"])
    found = decompose(preferences(contexts=len(counts)), context_weights=counts)
    np.testing.assert_allclose(found.context_weights, case["weights"], atol=1e-10)
    np.testing.assert_allclose(found.n_effective_contexts, case["n_eff"], atol=1e-10)


# -- the definition, and what must not matter ------------------------------------------------------


@given(
    st.integers(0, 10_000),
    st.integers(2, 5),
    st.sampled_from(CRITERIA),
    st.sampled_from([None, "y", "xy", "xcy"]),
)
def test_the_decomposition_is_the_one_computed_by_loops(seed, classes, criterion, reference):
    rng = np.random.default_rng(seed)
    p = preferences(seed, classes=classes)
    w_c, w_x = rng.random(4) + 0.1, rng.random(3) + 0.1
    axes = {"x": 3, "c": 4}
    shares = rng.dirichlet(np.full(classes, 5), size=[axes[a] for a in (reference or "y")[:-1]])
    found = decompose(
        p,
        context_weights=w_c,
        x_weights=w_x,
        criterion=criterion,
        reference=shares if reference else None,
    )
    k = float(criterion[1:])

    def stereotype(x: int, c: int, y: int) -> float:
        if reference is None:
            return (classes * p[x, c, y] - 1) / (classes - 1)
        place = {"y": (y,), "xy": (x, y), "xcy": (x, c, y)}[reference]
        return p[x, c, y] / shares[place] - 1

    def size(s: list[float]) -> float:
        positive = [max(value, 0.0) for value in s]
        return max(positive) if k == np.inf else sum(v**k for v in positive) ** (1 / k)

    R = R_p = 0.0
    for x in range(3):
        s = [[stereotype(x, c, y) for y in range(classes)] for c in range(4)]
        w = [value / sum(w_c) for value in w_c]
        r = sum(w[c] * size(s[c]) for c in range(4))
        r_p = size([sum(w[c] * s[c][y] for c in range(4)) for y in range(classes)])
        np.testing.assert_allclose([found.r[x], found.r_p[x]], [r, r_p], atol=1e-12)
        R += w_x[x] / sum(w_x) * r
        R_p += w_x[x] / sum(w_x) * r_p
    np.testing.assert_allclose(of_model(found), [R, R_p, R - R_p], atol=1e-12)
    assert (found.r_v >= 0).all()
    assert found.R >= 0


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
        np.testing.assert_allclose(of_model(plain), of_model(found), atol=1e-12)


@given(st.integers(0, 10_000))
def test_context_alone_makes_volatility_and_two_classes_know_one_norm(seed):
    p = preferences(seed, classes=2)
    same = np.repeat(p[:, :1], 5, axis=1)
    for criterion in CRITERIA:
        np.testing.assert_allclose(decompose(same, criterion=criterion).r_v, 0.0, atol=1e-12)
        found = decompose(p, criterion=criterion)
        np.testing.assert_allclose(found.J, np.abs(2 * p[..., 0] - 1), atol=1e-12)


@given(st.integers(0, 10_000), st.integers(2, 5), st.sampled_from(CRITERIA))
def test_a_uniform_reference_is_k_minus_1_times_the_default_scale(seed, classes, criterion):
    p = preferences(seed, classes=classes)
    plain = decompose(p, criterion=criterion)
    uniform = np.full(classes, 1 / classes)
    for shape in (classes, (3, classes), p.shape):
        found = decompose(p, criterion=criterion, reference=np.broadcast_to(uniform, shape))
        np.testing.assert_allclose(found.s, (classes - 1) * plain.s, atol=1e-12)
        np.testing.assert_allclose(of_model(found), (classes - 1) * of_model(plain), atol=1e-12)
    assert decompose(p, reference=p).R == 0
    assert (plain.scale, found.scale) == ("(K p - 1)/(K - 1)", "p/p* - 1")


@given(st.integers(0, 10_000))
def test_a_larger_k_gives_a_smaller_risk_down_to_the_largest_stereotype(seed):
    p = preferences(seed, classes=4)
    orders = ("l1", "l2", "l3", "l9", "l99", "l99999", "linf")
    sizes = [decompose(p, criterion=k).J for k in orders]
    for smaller_k, larger_k in pairwise(sizes):
        assert (larger_k <= smaller_k + 1e-12).all()
    np.testing.assert_allclose(sizes[-2], sizes[-1], rtol=1e-4)


def test_l3_and_a_reference_have_the_values_worked_out_by_hand():
    p, reference = np.array([[[0.5, 0.3, 0.2]]]), np.array([0.25, 0.2, 0.55])
    # s = 1, 1/2, -7/11: J of l^3 is the cube root of 1 + 1/8.
    found = decompose(p, reference=reference, criterion="l3")
    np.testing.assert_allclose(found.s[0, 0], [1, 0.5, -7 / 11])
    np.testing.assert_allclose([found.R, found.R_p, found.R_v], [1.125 ** (1 / 3)] * 2 + [0])


# -- reference models ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["random_init_expected"], ids=lambda c: f"K{c['K']}")
def test_closed_forms_are_the_reference_ones(case):
    rows = reference_models(case["K"])
    assert rows["randomly initialised"][0] == pytest.approx(case["linf_pcf"], abs=1e-10)
    assert rows["stereotyped"][0] == case["max_pcf"]


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_each_reference_row_is_what_such_a_model_scores(n_classes):
    rng = np.random.default_rng(0)
    x, contexts = 40, 4000
    one_hot = np.eye(n_classes)
    simulated = {
        "ideally unbiased": np.full((x, contexts, n_classes), 1 / n_classes),
        "stereotyped": one_hot[np.repeat(rng.integers(n_classes, size=(x, 1)), contexts, axis=1)],
        "randomly stereotyped": one_hot[rng.integers(n_classes, size=(x, contexts))],
        "randomly initialised": rng.dirichlet(np.ones(n_classes), size=(x, contexts)),
    }
    for name, expected in reference_models(n_classes).items():
        np.testing.assert_allclose(of_model(decompose(simulated[name])), expected, atol=0.03)


@pytest.mark.parametrize("criterion", ["linf", "l3"])
def test_reference_models_about_a_reference_are_what_such_models_score(criterion):
    rng, x, contexts = np.random.default_rng(0), 40, 800
    shares = np.array([0.5, 0.3, 0.2])
    classes = rng.choice(3, p=shares, size=(x, contexts))
    more = {"reference": shares, "criterion": criterion}
    rows = reference_rows(decompose(preferences(0, x, contexts), **more), rng=rng)
    simulated = {
        "ideally unbiased": np.broadcast_to(shares, (x, contexts, 3)),
        "randomly stereotyped": np.eye(3)[classes],
        "randomly initialised": rng.dirichlet(3 * shares, size=(x, contexts)),
    }
    for name, p in simulated.items():
        np.testing.assert_allclose(of_model(decompose(p, **more)), rows[name], atol=0.06)
    certain = decompose(np.eye(3)[:, None], x_weights=shares, **more)
    np.testing.assert_allclose(of_model(certain), rows["stereotyped"], atol=1e-12)
    np.testing.assert_allclose(rows["stereotyped"], [2, 2, 0], atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3])
def test_reference_rows_of_a_uniform_reference_are_k_minus_1_times_the_others(classes):
    p, rng = preferences(0, 5, 6, classes), np.random.default_rng
    plain = reference_rows(decompose(p), rng=rng(0))
    uniform = np.full(classes, 1 / classes)
    found = reference_rows(decompose(p, reference=uniform), rng=rng(0))
    for name, values in plain.items():
        np.testing.assert_allclose(found[name], np.multiply(classes - 1, values), atol=0.02)


def test_few_contexts_show_prejudice_where_there_is_none_and_more_show_less():
    """Two classes, ten equal contexts: sd of the mean of a uniform on [-1, 1], half normal."""
    drawn = finite_context_null(np.ones(10), 2, rng=np.random.default_rng(0))
    np.testing.assert_allclose(drawn.mean(), np.sqrt(2 / np.pi) / np.sqrt(3 * 10), atol=0.004)
    means = [
        finite_context_null(np.ones(n), 3, rng=np.random.default_rng(0)).mean()
        for n in (1, 10, 100)
    ]
    np.testing.assert_allclose(means[0], reference_models(3)["randomly initialised"][0], atol=0.02)
    assert means[0] > 2 * means[1] > 4 * means[2]


# -- intervals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "more"),
    [(2, {}), (3, {}), (3, {"criterion": "l3", "reference": np.array([0.2, 0.3, 0.5])})],
)
def test_intervals_over_templates_leave_each_out_of_the_definition(classes, more):
    p, counts, x_weights = preferences(0, 6, 7, classes), np.arange(1.0, 8), np.arange(1.0, 7)
    risk = decompose(p, context_weights=counts, x_weights=x_weights, **more)
    without = [
        of_model(
            decompose(
                np.delete(p, c, axis=1),
                context_weights=np.delete(counts, c),
                x_weights=x_weights,
                **more,
            )
        )
        for c in range(7)
    ]
    found = risk_intervals(risk)["templates"]
    for place, value in enumerate(of_model(risk)):
        sure = jackknife_mean(np.log(value), np.log(without)[:, place], counts)
        np.testing.assert_allclose(found[:, place], np.exp(sure.limits()))


def test_intervals_over_x_are_those_of_its_weighted_mean_and_over_both_hold_both_variances():
    risk = decompose(preferences(0, 6, 7), x_weights=np.arange(1.0, 7))
    width = {
        over: np.diff(np.log(limits), axis=0)[0] for over, limits in risk_intervals(risk).items()
    }
    for place, each in enumerate((risk.r, risk.r_p, risk.r_v)):
        mean = cluster_mean(each, weight=risk.x_weights)
        expected = 2 * stats.t.ppf(0.975, mean.df) * mean.error / of_model(risk)[place]
        assert width["x"][place] == pytest.approx(expected)
        assert width["both"][place] > max(width["x"][place], width["templates"][place]) * 0.9


def test_intervals_of_every_x_are_those_of_that_x_alone_without_contexts_of_no_weight():
    p, counts = preferences(0, 6, 8), np.arange(8.0)
    every = x_intervals(decompose(p, context_weights=counts))
    for i in (0, 4):
        alone = decompose(p[i : i + 1, 1:], context_weights=counts[1:])
        np.testing.assert_allclose(every[:, :, i], risk_intervals(alone)["templates"])


@pytest.mark.parametrize("weighted", [3, 6])
def test_words_without_weight_are_not_of_the_sample(weighted):
    p, x_weights = preferences(0, 30, 9), np.zeros(30)
    x_weights[:weighted] = np.arange(1.0, weighted + 1)
    found = risk_intervals(decompose(p, x_weights=x_weights))
    alone = risk_intervals(decompose(p[:weighted], x_weights=x_weights[:weighted]))
    for over, limits in found.items():
        np.testing.assert_allclose(limits, alone[over])
        assert np.isnan(limits).all() == (weighted < 5 and over != "templates")


def test_what_does_not_vary_or_is_few_has_no_interval():
    same = np.repeat(preferences(0, 6, 1), 8, axis=1)
    assert np.isnan(x_intervals(decompose(same))).all()
    for over, shape in {"x": (4, 9), "templates": (9, 4)}.items():
        found = risk_intervals(decompose(preferences(0, *shape)))
        assert np.isnan([found[over], found["both"]]).all()
