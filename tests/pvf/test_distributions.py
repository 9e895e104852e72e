"""Tests of distributions: the statistic written out, critical points, samples of known shape."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pvf.distributions import anderson_p, distribution_tests
from pvf.finding import risk_finding
from pvf.report import risk_report
from tests.support.preferences import made_up


def rows(r_p, r_v):
    return distribution_tests(np.asarray(r_p), np.asarray(r_v)).itertuples()


@given(st.integers(0, 1000), st.integers(8, 200))
def test_the_statistic_is_the_one_written_out(seed, n):
    values = np.random.default_rng(seed).gamma(3, size=n)
    normal, _, _ = rows(values, values)
    u = stats.norm.cdf(np.sort(values), values.mean(), values.std(ddof=1))
    total = sum((2 * k - 1) * (np.log(u[k - 1]) + np.log1p(-u[n - k])) for k in range(1, n + 1))
    literal = (-n - total / n) * (1 + 0.75 / n + 2.25 / n**2)
    assert normal.statistic == pytest.approx(literal, rel=1e-6)


def test_p_values_are_those_of_the_published_critical_points():
    for critical, level in ((0.631, 0.10), (0.752, 0.05), (0.873, 0.025), (1.035, 0.01)):
        assert anderson_p(critical) == pytest.approx(level, rel=0.03)


def test_normal_samples_are_rejected_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    rejected = [next(rows(rng.normal(0.5, 0.1, 60), np.ones(60))).p <= 0.05 for _ in range(1000)]
    assert 0.03 <= np.mean(rejected) <= 0.07


def test_samples_of_known_shape_are_told_apart():
    rng = np.random.default_rng(1)
    skewed, heavy = rng.exponential(size=400), np.exp(rng.normal(-3, 1.5, 400))
    normal, log_normal, _ = rows(skewed, heavy)
    assert normal.found == "not normal"
    assert (log_normal.found, log_normal.p < 1e-3) == ("log-normal", True)
    bell, pareto = rng.normal(0.5, 0.05, 400), 0.01 * (1 + rng.pareto(1.2, 400))
    _, log_normal, _ = rows(bell, bell)
    assert log_normal.statistic < 0
    _, _, power = rows(bell, pareto)
    assert power.found == "power law"
    _, _, tail = rows(bell, bell)
    assert tail.found != "power law"


def test_where_nothing_is_found_the_words_that_are_needed_are_said():
    rng = np.random.default_rng(2)
    normal, log_normal, power = rows(rng.normal(size=30), np.r_[np.zeros(20), rng.random(12) + 0.5])
    assert normal.found == "no deviation found"
    assert normal.words_needed == np.ceil(30 * 0.752 / normal.statistic)
    assert (log_normal.words, power.words <= 12) == (12, True)
    for row in (log_normal, power):
        if row.found == "no difference found":
            wanted = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
            assert row.words_needed == np.ceil(row.words * (wanted / row.statistic) ** 2)


def test_few_or_equal_words_have_no_shape():
    for r_p, r_v in (([0.1] * 5, [0.0] * 5), ([0.2] * 30, [0.1] * 30)):
        for row in rows(r_p, r_v):
            assert row.found == "too few words that vary"
            assert np.isnan([row.statistic, row.p, row.words_needed]).all()


def test_the_tests_stand_in_the_report_and_its_details(tmp_path):
    report = risk_report(made_up(n_x=40))
    report.save(tmp_path)
    assert (tmp_path / "distributions.csv").is_file()
    said = " ".join(risk_finding(report).details)
    assert "r_p over 40 words, normal? Anderson-Darling" in said
    weighted = risk_report(made_up(n_x=40), x_weights=np.r_[np.ones(20), np.zeros(20)])
    assert weighted.distributions["words"][0] == 20
