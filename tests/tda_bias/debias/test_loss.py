"""The loss by its definition, number by number."""

import math

import numpy as np
import pytest
import torch

from tda_bias.debias.loss import continuation_means, divergence, gaps, huber

RNG = np.random.default_rng(0)


def softmax(row):
    top = max(row)
    total = sum(math.exp(x - top) for x in row)
    return [math.exp(x - top) / total for x in row]


def test_means_are_those_of_the_continuation_tokens_alone():
    logits = RNG.normal(size=(2, 6, 5))
    ids = RNG.integers(0, 5, size=(2, 6))
    scored = np.zeros((2, 6), dtype=bool)
    scored[0, 3:6], scored[1, 2:4] = True, True  # the second is padded from 4 on
    found = continuation_means(torch.tensor(logits), torch.tensor(ids), torch.tensor(scored))
    for row, (first, stop) in enumerate([(3, 6), (2, 4)]):
        log_probs = [math.log(softmax(logits[row, t - 1])[ids[row, t]]) for t in range(first, stop)]
        assert float(found[row]) == pytest.approx(sum(log_probs) / (stop - first), rel=1e-5)


def test_the_gap_subtracts_the_mean_of_the_twins():
    means, twins = RNG.normal(size=(3, 2)), RNG.normal(size=(4, 2))
    twin_of = [0, 0, 2, 1]
    found = gaps(torch.tensor(means), torch.tensor(twins), torch.tensor(twin_of))
    for item in range(3):
        of_twins = [s - a for (s, a), i in zip(twins, twin_of, strict=True) if i == item]
        literal = means[item, 0] - means[item, 1] - sum(of_twins) / len(of_twins)
        assert float(found[item]) == pytest.approx(literal, rel=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.05, -0.05, 0.125, 0.3, -2.0])
def test_huber_is_quadratic_inside_delta_and_linear_outside(gap):
    scaled = abs(4 * gap)
    literal = scaled**2 / 2 if scaled <= 0.5 else 0.5 * (scaled - 0.25)
    assert float(huber(torch.tensor([gap]))[0]) == pytest.approx(literal, rel=1e-6)


def test_the_loss_does_not_know_which_continuation_is_the_stereotype():
    """Why a placebo that flips the roles of both triple and twin would be the real thing."""
    means, twins = torch.tensor(RNG.normal(size=(3, 2))), torch.tensor(RNG.normal(size=(3, 2)))
    twin_of = torch.arange(3)
    straight = huber(gaps(means, twins, twin_of))
    flipped = huber(gaps(means.flip(1), twins.flip(1), twin_of))
    torch.testing.assert_close(straight, flipped)
    assert not torch.allclose(straight, huber(gaps(means, twins.flip(1), twin_of)))


def test_the_divergence_is_that_of_real_tokens_and_0_only_where_nothing_changed():
    before, after = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 4))
    real = torch.tensor([[True, True, True], [True, False, False]])
    found = divergence(torch.tensor(before), torch.tensor(after), real)
    terms = []
    for row, place in [(0, 0), (0, 1), (0, 2), (1, 0)]:
        p, q = softmax(before[row, place]), softmax(after[row, place])
        terms.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    assert float(found) == pytest.approx(sum(terms) / 4, rel=1e-5)
    assert float(found) > 0
    assert float(divergence(torch.tensor(before), torch.tensor(before + 3.0))) < 1e-6


def test_the_divergence_equals_that_of_torch():
    before, after = (torch.tensor(RNG.normal(size=(5, 7))) for _ in range(2))
    theirs = torch.nn.functional.kl_div(
        torch.log_softmax(after, -1), torch.log_softmax(before, -1),
        reduction="batchmean", log_target=True,
    )  # fmt: skip
    assert float(divergence(before, after)) == pytest.approx(float(theirs), rel=1e-5)
