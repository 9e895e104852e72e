"""The loss by its definition, number by number."""

import math

import numpy as np
import pytest
import torch

from tda_bias.debias.loss import anchor, divergence, gaps, huber, relatedness

RNG = np.random.default_rng(0)


def softmax(row):
    top = max(row)
    total = sum(math.exp(x - top) for x in row)
    return [math.exp(x - top) / total for x in row]


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


def test_the_divergence_is_the_mean_over_tokens_and_0_only_where_nothing_changed():
    before, after = RNG.normal(size=(2, 4, 5))
    found = divergence(torch.tensor(before), torch.tensor(after))
    terms = []
    for logits in zip(before, after, strict=True):
        p, q = map(softmax, logits)
        terms.append(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)))
    assert float(found) == pytest.approx(sum(terms) / 4, rel=1e-5)
    assert float(found) > 0
    assert float(divergence(torch.tensor(before), torch.tensor(before + 3.0))) < 1e-6


def test_relatedness_is_the_mean_of_the_related_continuations_less_the_unrelated_one():
    means = RNG.normal(size=(4, 3))
    found = relatedness(torch.tensor(means))
    for item, (s, a, u) in enumerate(means.tolist()):
        assert float(found[item]) == pytest.approx((s + a) / 2 - u, rel=1e-12)


def test_the_anchor_is_the_mean_squared_change_of_the_relatedness_and_no_other_change():
    before, now = RNG.normal(size=(2, 5, 3))
    found = float(anchor(*(relatedness(torch.tensor(m)) for m in (now, before))))
    changes = [
        ((s + a) / 2 - u) - ((s0 + a0) / 2 - u0)
        for (s, a, u), (s0, a0, u0) in zip(now.tolist(), before.tolist(), strict=True)
    ]
    assert found == pytest.approx(sum(c**2 for c in changes) / 5, rel=1e-12)
    # Equalising stereotype and anti-stereotype costs nothing; nor does a shift of all three.
    equal = before.copy()
    equal[:, :2] = before[:, :2].mean(1, keepdims=True)
    same = (relatedness(torch.tensor(m)) for m in (equal + 0.7, before))
    assert float(anchor(*same)) < 1e-12
