"""Slices of heads: zeroing them is removing the head through hooks; and random heads."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch

from tda_bias.ablation.head_weights import (
    export_record,
    head_slices,
    heads_of_file,
    n_possible_sets,
    random_sets,
)
from tda_bias.models.load import bridge_model
from tda_bias.types import HeadId, InputError
from tests.support.models import tiny_hf_model

KINDS = ["gpt2", "gpt_neox", "llama", "qwen2", "gemma2", "opt", "bloom", "phi3"]
IDS = torch.tensor([[5, 9, 17, 4, 33, 8]])


def logits(hf_model):
    with torch.no_grad():
        return hf_model(input_ids=IDS).logits


def zeroed(hf_model, heads, part):
    """Zero the slices of heads in a model."""
    parameters = dict(hf_model.named_parameters())
    with torch.no_grad():
        for one in (piece for head in heads for piece in head_slices(hf_model, head)):
            if one.part == part:
                one.of(parameters[one.parameter]).zero_()


@pytest.mark.parametrize("kind", KINDS)
def test_zeroing_the_output_slice_is_removing_the_head(tokenizer, kind):
    head = HeadId(1, 3)
    plain = tiny_hf_model(kind, len(tokenizer))
    hooked = bridge_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name="m")
    before = logits(plain)

    def zero(z, hook):
        z = z.clone()
        z[:, :, head.head] = 0
        return z

    with hooked.bridge.hooks(fwd_hooks=[(f"blocks.{head.layer}.attn.hook_z", zero)]):
        expected = logits(hooked.hf_model)
    zeroed(plain, [head], "o")
    torch.testing.assert_close(logits(plain), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(before, expected, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_zeroing_the_value_slice_removes_every_head_that_shares_it(tokenizer, kind):
    plain, removed = (tiny_hf_model(kind, len(tokenizer)) for _ in range(2))
    head = HeadId(1, 2)
    values = [one for one in head_slices(plain, head) if one.part == "v"]
    everyone = [head, *(HeadId(1, h) for h in values[0].shared_with)]
    assert len(everyone) == (2 if kind in ("llama", "qwen2", "gemma2", "phi3") else 1)
    zeroed(plain, [head], "v")
    zeroed(removed, everyone, "o")
    torch.testing.assert_close(logits(plain), logits(removed), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_query_slices_of_all_heads_cover_the_projection_once(tokenizer, kind):
    hf_model = tiny_hf_model(kind, len(tokenizer))
    parameters = dict(hf_model.named_parameters())
    covered = {}
    for head in range(4):
        for one in head_slices(hf_model, HeadId(0, head)):
            count = covered.setdefault(one.parameter, torch.zeros_like(parameters[one.parameter]))
            one.of(count).add_(1.0 / (1 + len(one.shared_with)))
    for name, count in covered.items():
        torch.testing.assert_close(count, torch.ones_like(count), msg=name)


def test_the_record_is_read_back(tokenizer, tmp_path):
    hf_model = tiny_hf_model("llama", len(tokenizer))
    rows = [{"layer": 1, "head": 2, "p": 0.1, "q": 0.5}]
    about = {"name": "m", "revision": None, "architecture": "L", "weights": "w", "device": "cpu"}
    record = export_record(hf_model, rows, model=about, rule={"top": 1})
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    heads, named = heads_of_file(path)
    assert heads == [HeadId(1, 2)]
    assert named["weights"] == "w"
    (head,) = record["heads"]
    assert head["name"] == "L1H2"
    assert {one["part"] for one in head["slices"]} == {"q", "k", "v", "o"}
    shared = {tuple(one["shared_with"]) for one in head["slices"] if one["part"] in "kv"}
    assert shared == {(3,)}
    path.write_text('{"heads": []}', encoding="utf-8")
    with pytest.raises(InputError, match="no file that `tdabias edit --as slices` wrote"):
        heads_of_file(path)


# -- random sets -----------------------------------------------------------------------------------


def test_a_layer_without_enough_other_heads_is_named():
    heads = [HeadId(0, 1), HeadId(0, 2)]
    with pytest.raises(InputError, match="layer 0 has 2 chosen heads and 1 others"):
        random_sets(heads, 3, 5, rng=np.random.default_rng(0))


def test_random_sets_keep_the_layers_and_leave_the_heads_out():
    heads = [HeadId(0, 1), HeadId(0, 2), HeadId(3, 0)]
    sets = random_sets(heads, 6, 20, rng=np.random.default_rng(0))
    assert len(sets) == len(set(sets)) == 20
    for own in sets:
        assert sorted(head.layer for head in own) == [0, 0, 3]
        assert len(set(own)) == 3
        assert not set(own) & set(heads)


def test_where_there_are_few_all_are_given_once():
    heads = [HeadId(0, 1), HeadId(2, 0)]
    assert n_possible_sets(heads, 4) == 9
    sets = random_sets(heads, 4, 20, rng=np.random.default_rng(0))
    assert set(sets) == {(HeadId(0, a), HeadId(2, b)) for a in (0, 2, 3) for b in (1, 2, 3)}
    assert len(sets) == 9


def test_a_layer_with_too_few_others_can_give_its_chosen_heads_too():
    heads = [*(HeadId(0, head) for head in range(3)), HeadId(1, 0)]
    assert n_possible_sets(heads, 4) == 0
    assert n_possible_sets(heads, 4, scarce=True) == 4 * 3
    sets = random_sets(heads, 4, 20, rng=np.random.default_rng(0), scarce=True)
    assert len(set(sets)) == 12
    for drawn in sets:
        assert [head.layer for head in drawn] == [0, 0, 0, 1]
        assert HeadId(1, 0) not in drawn


def test_every_set_is_as_likely():
    heads = [HeadId(0, 0), HeadId(0, 1)]
    rng = np.random.default_rng(0)
    drawn = [own for _ in range(2000) for own in random_sets(heads, 7, 2, rng=rng)]
    pairs = [tuple(HeadId(0, h) for h in pair) for pair in combinations(range(2, 7), 2)]
    counts = np.array([drawn.count(pair) for pair in pairs])
    assert counts.sum() == 4000
    assert ((counts - 400) ** 2 / 400).sum() < 27.9  # chi squared with 9 degrees, p = .001
