"""SmolLM2-135M on the real StereoSet: the same numbers by independent routes, and known facts."""

import numpy as np
import pytest
import torch

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import tokenize
from tda_bias.topology.persistence import births_deaths
from tda_bias.types import HeadId
from tests.support.gudhi_sets import gudhi_sets
from tests.support.patterns import read

pytestmark = [pytest.mark.real, pytest.mark.thorough]

GROUPS = ["sister", "herself", "schoolgirl"]


@pytest.fixture(scope="module")
def triples(stereoset):
    return load_triples(stereoset, category="gender", groups=GROUPS)


@pytest.fixture(scope="module")
def result(smollm2, triples):
    return head_bias(smollm2, triples, twins=None)


def test_every_head_of_every_group_is_there(result):
    assert len(result.table) == 3 * 2 * 30 * 9
    assert result.groups["n"].tolist() == [21, 21, 21]
    assert result.record.texts.triples_used == 63
    assert all(group.row_sums.failed == {} for group in result.record.groups)
    assert np.isfinite(result.table[["S", "relative", "p_paired", "p_max"]]).all().all()


def test_prefixes_are_shared_and_save_about_a_third_of_the_tokens(smollm2, triples, result):
    assert all(group.prefix_sharing.startswith("on") for group in result.record.groups)
    texts = tokenize(smollm2.tokenizer, triples, max_tokens=smollm2.max_tokens)
    once = sum(context.n_packed for context in texts)
    assert 0.6 < once / result.record.texts.tokens < 0.75


def test_shared_and_plain_runs_agree(smollm2, triples, result, monkeypatch):
    monkeypatch.setattr(PatternReader, "sharing", "off")
    config = HeadBiasConfig(batch_size=7, n_permutations=99)
    chosen = [t for t in triples if t.group == "sister"]
    plain = head_bias(smollm2, chosen, twins=None, config=config).table
    shared = result.table[result.table["group"] == "sister"]
    np.testing.assert_allclose(plain["relative"], shared["relative"], atol=1e-3)
    np.testing.assert_allclose(plain["S"], shared["S"], rtol=2e-2, atol=1e-4)


def test_patterns_equal_hugging_faces_on_real_text(smollm2, triples):
    from tda_bias.models.load import load_language_model

    reference = load_language_model("smollm2-135m", attention="eager").hf_model
    tokens = tokenize(smollm2.tokenizer, triples[:2], max_tokens=smollm2.max_tokens)
    assert PatternReader(smollm2, batch_size=6, probes=tokens).sharing.startswith("on")
    found = read(smollm2, tokens, batch_size=6, shared=True)
    assert set(found) == set(range(6))
    for text, pattern in found.items():
        ids = torch.tensor([tokens[text // 3].ids[text % 3]])
        with torch.no_grad():
            expected = torch.cat(reference(input_ids=ids, output_attentions=True).attentions)
        torch.testing.assert_close(pattern, expected, rtol=0, atol=1e-5)


def test_births_and_deaths_of_real_patterns_are_gudhis(smollm2, triples):
    tokens = tokenize(smollm2.tokenizer, triples[:1], max_tokens=None)
    batches = list(PatternReader(smollm2, batch_size=1).read(tokens))
    pattern = batches[0].patterns[0, ::10, ::4]
    ours, (births, deaths) = births_deaths(pattern), gudhi_sets(pattern.numpy())
    np.testing.assert_array_equal(ours.births, births)
    np.testing.assert_array_equal(ours.deaths, deaths)


def test_the_published_p_calls_far_more_heads_significant_than_the_paired_one(result):
    paper = (result.table["p_paper"] < 0.05).mean()
    paired = (result.table["p_paired"] < 0.05).mean()
    assert paper > 2 * paired
    assert 0.02 < paired < 0.15


def test_a_real_result_comes_back_as_it_was_saved(result, tmp_path):
    from tda_bias import HeadBias

    result.save(tmp_path)
    again = HeadBias.load(tmp_path)
    np.testing.assert_array_equal(again.category_map(), result.category_map())


def test_continuations_are_scored_as_by_the_plain_model(smollm2, triples):
    from tda_bias.scores.likelihood import triple_likelihoods

    found = triple_likelihoods(smollm2, triples[:2])
    for triple, own in zip(triples[:2], found, strict=True):
        context = len(smollm2.tokenizer(triple.context.strip())["input_ids"])
        for text, total in zip(triple.texts(), own.total, strict=True):
            ids = smollm2.tokenizer(text)["input_ids"]
            with torch.no_grad():
                logits = smollm2.hf_model(input_ids=torch.tensor([ids])).logits[0].double()
            steps = torch.log_softmax(logits, -1)[range(context - 1, len(ids) - 1)]
            own_tokens = ids[context:]
            expected = float(steps[range(len(own_tokens)), own_tokens].sum())
            assert total == pytest.approx(expected, abs=1e-3)


def test_removing_a_real_head_is_zeroing_its_exported_slice(smollm2, triples):
    from tda_bias.ablation.ablator import Ablator
    from tda_bias.ablation.head_weights import head_slices
    from tda_bias.models.load import load_language_model
    from tda_bias.scores.likelihood import triple_likelihoods

    head = HeadId(20, 3)
    ablator = Ablator(smollm2, triples[:2], ablation="zero")
    (removed,) = ablator.without([[head]])
    plain = load_language_model("smollm2-135m", device="cpu")
    parameters = dict(plain.hf_model.named_parameters())
    slices = head_slices(plain.hf_model, head)
    assert {one.shared_with for one in slices if one.part in "kv"} == {(4, 5)}
    with torch.no_grad():
        for one in (s for s in slices if s.part == "o"):
            one.of(parameters[one.parameter]).zero_()
    expected = [one.total for one in triple_likelihoods(plain, triples[:2])]
    np.testing.assert_allclose(removed.continuation, expected, atol=2e-3)


def test_first_order_estimates_go_with_real_effects(smollm2, triples):
    from scipy import stats

    from tda_bias.ablation.ablator import Ablator

    ablator = Ablator(smollm2, triples[:4])
    heads = [HeadId(layer, head) for layer in (5, 15, 25) for head in range(0, 9, 2)]
    base, *without = ablator.without([(), *([head] for head in heads)])
    exact = [(one.log_odds - base.log_odds).mean() for one in without]
    estimates = ablator.first_order().effect
    estimated = [estimates[head.layer, head.head] for head in heads]
    assert stats.spearmanr(exact, estimated).statistic > 0.8
