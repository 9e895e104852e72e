"""Statistics of distances that no vectors have, from the distances alone, with nothing clipped."""

import numpy as np
import pytest

from tda_bias.heads.contrast import contrast, negative_share, signed_factor, version_products
from tda_bias.heads.group_statistic import GroupLayout, statistic_from_gram
from tda_bias.heads.hot_spots import location_under_exchange, location_under_flips
from tda_bias.heads.resampled import label_flips, version_draws

HEADS = 3


def squared(n_texts: int, seed: int = 0) -> np.ndarray:
    """Squared distances of texts, head by head, that break the triangle's rules for squares."""
    rng = np.random.default_rng(seed)
    drawn = rng.exponential(size=(HEADS, n_texts, n_texts)) ** 3
    both = (drawn + drawn.transpose(0, 2, 1)) / 2
    both[:, range(n_texts), range(n_texts)] = 0.0
    return both


def centred(of_texts: np.ndarray) -> np.ndarray:
    centring = np.eye(of_texts.shape[-1]) - 1 / of_texts.shape[-1]
    return -0.5 * centring @ of_texts @ centring


def product(of_head: np.ndarray, a: int, b: int, c: int, d: int) -> float:
    """<a - b, c - d> from distances."""
    return (of_head[a, d] + of_head[b, c] - of_head[a, c] - of_head[b, d]) / 2


def products(of_head: np.ndarray, layout: GroupLayout) -> np.ndarray:
    """<D_v, D_w> of all versions."""
    pairs = list(zip(layout.stereotype_of_version, layout.anti_of_version, strict=True))
    return np.array([[product(of_head, *v, *w) for w in pairs] for v in pairs])


def variance(of_cluster: np.ndarray) -> float:
    return float(of_cluster.mean() / 2)


def test_variances_are_means_of_distances_and_may_leave_no_ratio():
    layout = GroupLayout(6, 6)
    distances = squared(layout.n_texts)
    gram = centred(distances)
    assert (np.linalg.eigvalsh(gram)[:, 0] < -0.1).all()
    found = statistic_from_gram(gram, layout, euclidean=False)
    for head in range(HEADS):
        stereotype, anti, unrelated = (
            variance(distances[head, part, part])
            for part in (layout.stereotype, layout.anti, layout.unrelated)
        )
        assert found.var_stereotype[head] == pytest.approx(stereotype)
        assert found.S[head] == pytest.approx((anti - stereotype) / unrelated)
    clipped = statistic_from_gram(gram, layout)
    assert not np.allclose(clipped.q_stereotype, found.q_stereotype)


def test_factors_with_signs_give_the_matrix_back():
    gram = centred(squared(9))
    columns, sign = signed_factor(gram)
    np.testing.assert_allclose((columns * sign[:, None]) @ columns.mT, gram, atol=1e-12)
    share = negative_share(gram)
    assert ((share > 0.05) & (share < 0.5)).all()
    assert negative_share(np.eye(4)[None])[0] == 0
    assert np.isnan(negative_share(np.zeros((1, 4, 4))))[0]


def test_location_and_its_flips_are_literal():
    n = 6
    layout = GroupLayout(n, n)
    distances = squared(layout.n_texts)
    found = contrast(version_products(centred(distances), layout, euclidean=False))
    flips = label_flips(n, 20, np.random.default_rng(0))
    null = location_under_flips(flips.signs, found.rows().of(slice(n)))
    for head in range(HEADS):
        of_head = products(distances[head], layout)
        assert found.location[head] == pytest.approx(of_head.sum() / np.trace(of_head))
        expected = [signs @ of_head @ signs / np.trace(of_head) for signs in flips.signs]
        np.testing.assert_allclose(null[:, head], expected, rtol=1e-4, atol=1e-4)
    assert (null < 0).any()  # as no squares of vectors


@pytest.mark.parametrize("twin_of", [range(6), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]])
def test_exchange_with_twins_is_literal_or_undefined(twin_of):
    layout = GroupLayout(6, 6, list(twin_of))
    distances = squared(layout.n_texts)
    found = contrast(version_products(centred(distances), layout, euclidean=False))
    draws = version_draws(layout.versions, 50, np.random.default_rng(0))
    null = location_under_exchange(draws, found.rows())
    for head in range(HEADS):
        of_head = products(distances[head], layout)
        expected = []
        for chosen in draws.member:
            rows = []
            for place, members in enumerate(layout.versions.members):
                row = np.zeros(len(of_head))
                row[members] = -1 / (len(members) - 1)
                row[members[chosen[place]]] = 1
                rows.append(row)
            between = np.array(rows) @ of_head @ np.array(rows).T
            expected.append(between.sum() / np.trace(between) if np.trace(between) > 0 else np.nan)
        if np.isnan(expected).any():
            assert np.isnan(null[:, head]).all()
        else:
            np.testing.assert_allclose(null[:, head], expected, rtol=1e-3, atol=1e-3)


def test_of_vectors_both_ways_agree():
    rng = np.random.default_rng(1)
    texts = rng.normal(size=(HEADS, 30, 5))
    texts -= texts.mean(1, keepdims=True)
    gram, layout = texts @ texts.mT, GroupLayout(6, 6, list(range(6)))
    usual = contrast(version_products(gram, layout))
    signed = contrast(version_products(gram, layout, euclidean=False))
    for name in ("location", "location_twin", "relative_twin"):
        np.testing.assert_allclose(getattr(signed, name), getattr(usual, name), rtol=1e-9)
    draws = version_draws(layout.versions, 30, np.random.default_rng(0))
    np.testing.assert_allclose(
        location_under_exchange(draws, signed.rows()),
        location_under_exchange(draws, usual.rows()),
        rtol=1e-3,
    )
