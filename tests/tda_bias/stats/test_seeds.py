"""One generator for everything that has a name."""

import hashlib

import numpy as np
import pytest

from tda_bias.stats.seeds import generator


def test_a_named_generator_depends_on_seed_and_every_name_but_not_on_what_was_drawn_before():
    first = generator(3, "heads", "gender").random(4)
    generator(3, "heads", "race").random(9)
    np.testing.assert_array_equal(first, generator(3, "heads", "gender").random(4))
    others = [(4, "heads", "gender"), (3, "headsgender"), (3, "gender", "heads"), (3, "heads")]
    for seed, *names in others:
        assert not np.array_equal(first, generator(seed, *names).random(4))


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1, 2**40])
def test_numbers_follow_the_seed_as_numpy_takes_them_and_words_are_one_number(seed):
    def first(entropy):
        return np.random.default_rng(entropy).random(4).tolist()

    assert generator(seed).random(4).tolist() == first(seed)
    assert generator(seed, 2, 5).random(4).tolist() == first([seed, 2, 5])
    words = hashlib.blake2b(b"heads\0gender", digest_size=8).digest()
    expected = first([seed, int.from_bytes(words, "little")])
    assert generator(seed, "heads", "gender").random(4).tolist() == expected
