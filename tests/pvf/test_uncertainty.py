import numpy as np
import pytest
from scipy import stats

from pvf.risk import decompose
from pvf.uncertainty import risk_intervals, x_intervals
from tda_bias.types import InputError


def preferences(seed=0, *, n_x=6, n_contexts=7, classes=3):
    return np.random.default_rng(seed).dirichlet(np.ones(classes), size=(n_x, n_contexts))


def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize("over", ["templates", "x", "both"])
@pytest.mark.parametrize(("classes", "one_sided"), [(3, False), (2, False), (2, True)])
def test_intervals_are_scipys_of_the_definition(over, classes, one_sided):
    p, counts = preferences(classes=classes), np.arange(1.0, 8)
    x_weights = np.arange(1.0, 7)
    options = {"criterion": "l2", "one_sided": one_sided}
    risk = decompose(p, context_weights=counts, x_weights=x_weights, **options)

    def quantity(name):
        def statistic(*drawn):
            x = drawn[0] if over != "templates" else np.arange(6)
            c = drawn[-1] if over != "x" else np.arange(7)
            found = decompose(
                p[x][:, c], context_weights=counts[c], x_weights=x_weights[x], **options
            )
            return np.round(getattr(found, name), 12)

        return statistic

    data = {"templates": (7,), "x": (6,), "both": (6, 7)}[over]
    found = risk_intervals(risk, over=over, n_resamples=150, rng=rng(), **options)
    for number, name in enumerate(("R", "R_p", "R_v")):
        for method in ("percentile", "BCa"):
            expected = stats.bootstrap(
                tuple(np.arange(n) for n in data),
                quantity(name),
                vectorized=False,
                n_resamples=150,
                batch=150,
                method=method,
                rng=rng(),
            )
            limits = found.limits(method)[:, number]
            np.testing.assert_allclose(limits, expected.confidence_interval, atol=1e-10)
        assert found.standard_error[number] == pytest.approx(expected.standard_error)


def test_intervals_of_every_x_are_those_of_that_x_alone():
    p, counts = preferences(), np.arange(1.0, 8)
    risk = decompose(p, context_weights=counts)
    every = x_intervals(risk, n_resamples=200, rng=rng())
    for i in (0, 4):
        alone = decompose(p[i : i + 1], context_weights=counts)
        one = risk_intervals(alone, over="templates", n_resamples=200, rng=rng())
        np.testing.assert_allclose(every.percentile[:, :, i], one.percentile)
        np.testing.assert_allclose(every.bca[:, :, i], one.bca)


def test_where_nothing_varies_bca_is_undefined_and_the_percentile_stands_in():
    p = np.repeat(preferences(n_contexts=1), 4, axis=1)
    found = x_intervals(decompose(p), n_resamples=100, rng=rng())
    assert np.isnan(found.bca[:, 2]).all()
    np.testing.assert_allclose(found.limits("BCa")[:, 2], 0)
    np.testing.assert_allclose(found.limits("BCa")[:, 0], [decompose(p).r] * 2)


def test_contexts_left_out_for_some_x_stay_out_in_every_resample():
    p = preferences(n_x=8, n_contexts=4)
    weights = np.ones((8, 4))
    weights[0, :2] = 0
    risk = decompose(p, context_weights=weights)
    np.testing.assert_allclose(risk.r[0], decompose(p[:1, 2:]).r)
    found = risk_intervals(risk, over="both", n_resamples=200, rng=rng())
    assert np.isfinite(found.percentile).all()
    every = x_intervals(risk, n_resamples=200, rng=rng())
    assert np.isnan(every.percentile[:, 0, 0]).all()  # resamples that drew none of its contexts
    assert np.isfinite(every.percentile[:, 0, 1:]).all()


def test_a_bootstrap_over_one_thing_is_refused():
    risk = decompose(preferences(n_x=1))
    with pytest.raises(InputError, match="a bootstrap over x needs at least 2"):
        risk_intervals(risk, over="x", rng=rng())
    risk_intervals(risk, over="templates", n_resamples=100, rng=rng())


@pytest.mark.slow
def test_intervals_over_both_cover_the_truth():
    """R of a population of x and of templates, of which a sample of each was seen."""
    generator = np.random.default_rng(3)
    covered, runs = 0, 200
    truth = None
    for _ in range(runs):
        lean = generator.normal(0.5, 0.5, (40, 1))
        shift = generator.normal(0, 0.5, (1, 30))
        p = 1 / (1 + np.exp(-(lean + shift)))
        if truth is None:
            many = 0.5 + generator.normal(0, 0.5, (2000, 1)) + generator.normal(0, 0.5, (1, 2000))
            q = 1 / (1 + np.exp(-many))
            truth = np.abs(2 * q - 1).mean()
        risk = decompose(np.stack([p, 1 - p], axis=-1))
        found = risk_intervals(risk, over="both", n_resamples=300, rng=generator)
        low, high = found.bca[:, 0]
        covered += low <= truth <= high
    assert 0.88 <= covered / runs <= 0.99
