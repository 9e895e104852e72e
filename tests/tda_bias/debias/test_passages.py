"""Neutral passages: the model's own follow from the seed, those of a file share no token."""

import pytest
import torch

from tda_bias.debias.passages import neutral_text, written_passages
from tda_bias.types import InputError


@pytest.mark.parametrize("kind", ["gpt2", "openai"])  # the second has no cache
def test_passages_are_the_models_own_and_follow_from_the_seed(tiny_model, tokenizer, kind):
    model = tiny_model(kind)
    first = written_passages(model, 3, 10, seed=4)
    assert first == written_passages(model, 3, 10, seed=4)
    assert first != written_passages(model, 3, 10, seed=5)
    assert {len(own) for own in first} == {10}
    words = [tokenizer.convert_ids_to_tokens(own[0]) for own in first]
    assert all(word.istitle() for word in words)
    # Literally, without the model's cache: the token at which the sum of chances exceeds a number.
    rng = torch.Generator().manual_seed(4)
    torch.randint(2, (3,), generator=rng)
    for width in range(1, 10):
        numbers = torch.rand(3, 1, dtype=torch.double, generator=rng)
        for own, number in zip(first, numbers[:, 0].tolist(), strict=True):
            with torch.no_grad():
                logits = model.hf_model(torch.tensor([own[:width]])).logits[0, -1]
            chances = torch.softmax(logits.double(), -1).tolist()
            token = next(i for i in range(len(chances)) if sum(chances[: i + 1]) > number)
            assert own[width] == token


def test_the_three_parts_of_a_file_share_no_token(tiny_model, tokenizer, tmp_path):
    model = tiny_model("gpt2")
    words = [w for w in tokenizer.get_vocab() if w.isalpha()][:200]
    path = tmp_path / "text.txt"
    path.write_text(" ".join(words), encoding="utf-8")
    found = neutral_text(model, str(path), n_learn=6, n_watch=4, width=10)
    parts = [{t for own in w.ids for t in own} for w in (found.learn, found.watch, found.report)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    with pytest.raises(InputError, match="in three parts"):
        neutral_text(model, str(path), n_learn=90, n_watch=30, width=10)
    path.write_text(",sent_more,sent_less", encoding="utf-8")
    with pytest.raises(InputError, match=r"`text` .* is CrowS-Pairs, which must not be trained on"):
        neutral_text(model, str(path))
