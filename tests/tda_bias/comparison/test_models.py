"""Two models on one battery: what is refused, what is paired, what is saved and resumed."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from tda_bias import InputError
from tda_bias.comparison.brief import comparison_brief
from tda_bias.comparison.finding import comparison_finding
from tda_bias.comparison.measures import (
    divergence_measure,
    pair_measure,
    perplexity_measure,
    sentence_measure,
    triple_measure,
)
from tda_bias.comparison.models import (
    ModelComparison,
    NotMeasured,
    compare_models,
)
from tda_bias.comparison.outcome import Guard
from tda_bias.config import CompareConfig
from tda_bias.models.load import LanguageModel
from tda_bias.pairs import load_pairs
from tda_bias.plots.figures import plot_comparison
from tda_bias.scores.likelihood import TextReader
from tda_bias.scores.pair_scores import pair_set_scores
from tda_bias.scores.perplexity import log_perplexity, text_windows
from tda_bias.scores.stereoset_scores import sentence_twins, stereoset_scores
from tda_bias.scores.texts import Contrast
from tda_bias.sources import NeutralText
from tda_bias.store.cache import Cache
from tda_bias.triples import SentenceTriple, load_triples
from tda_bias.twins import make_twins
from tests.support.canvas import unseen
from tests.support.measures import MadeUp
from tests.support.tokenizers import Wrapped

FEW = {"config": CompareConfig(n_flips=99)}
AGREEMENT = ["anaphor_gender_agreement", "anaphor_number_agreement"]
TEXT = NeutralText("The nurse said that he knew that she felt that he wrote. " * 12, "here", None)


@pytest.fixture(scope="module")
def scaled(tiny_lm):
    """Models of one architecture that differ in the weights of a layer."""

    def make(name, scale):
        own = tiny_lm("gpt2")
        with torch.no_grad():
            own.hf_model.transformer.h[0].attn.c_proj.weight.mul_(scale)
        return LanguageModel(own.hf_model, own.tokenizer, name)

    return make


@pytest.fixture(scope="module")
def two(scaled):
    return [scaled("before", 1), scaled("after", 0.3)]


class OtherMask(Wrapped):
    """A tokenizer with another mask token."""

    mask_token_id = 1


def changed(**values):
    return {"before": [0.0] * 12, "after": [1.0] * 11 + [2.0], **values}


# -- bad input -------------------------------------------------------------------------------------


def test_models_that_cannot_be_compared_and_an_empty_battery_are_refused(two, tiny_lm):
    with pytest.raises(InputError, match="there is nothing to measure"):
        compare_models(*two, [])
    for other, said in (
        (
            LanguageModel(two[0].hf_model, two[0].tokenizer, "copy"),
            "before and copy have the same weights: was the checkpo",
        ),
        (
            tiny_lm("bert"),
            "before is a causal language model and tiny-bert a masked one, .*; compare two models",
        ),
        (
            replace(two[1], adapted="other"),
            "after adapts a model with other weights than before",
        ),
    ):
        with pytest.raises(InputError, match=said):
            compare_models(two[0], other, [MadeUp(changed())])
    own = replace(two[1], adapted=two[0].weight_hash())
    compare_models(two[0], own, [MadeUp(changed())], **FEW)


def test_parts_of_other_models_are_refused_by_name(two, tmp_path):
    compare_models(*two, [MadeUp(changed())], **FEW, cache=partial(Cache, tmp_path))
    with pytest.raises(InputError, match="parts saved with other settings .*other weights"):
        compare_models(two[1], two[0], [MadeUp(changed())], **FEW, cache=partial(Cache, tmp_path))
    other = LanguageModel(two[1].hf_model, OtherMask(two[1].tokenizer), "after")
    with pytest.raises(InputError, match=r"other settings \(other tokenizer\)"):
        compare_models(two[0], other, [MadeUp(changed())], **FEW, cache=partial(Cache, tmp_path))


def test_a_replicate_with_known_weights_is_refused(two):
    again = LanguageModel(two[1].hf_model, two[1].tokenizer, "again")
    measure = MadeUp(changed(again=[0.0] * 12))
    for replicate, message in ((two[0], "before and before have the same"), (again, "again and a")):
        with pytest.raises(InputError, match=message):
            compare_models(*two, [measure], replicates=[lambda m=replicate: m])


def test_special_tokens_in_the_texts_are_said_once(two):
    measure = MadeUp(changed())
    assert compare_models(*two, [measure], **FEW).record.remarks == ()
    mask = two[0].tokenizer.all_special_tokens[0]
    measure.texts = [f"The nurse said {mask} she was calm.", "The nurse was calm."]
    (remark,) = (found := compare_models(*two, [measure], **FEW)).record.remarks
    assert remark.startswith(f"1 text holds special tokens of the tokenizer ({mask})")
    assert remark in comparison_brief(found).remarks
    assert remark in comparison_finding(found).control


# -- definition ------------------------------------------------------------------------------------


def test_replicates_are_measured_saved_and_averaged(two, scaled, tmp_path):
    """Each is loaded when it is its turn; the change is the mean over trainings."""
    measure, load = MadeUp(changed(again=[3.0] * 12)), partial(scaled, "again", 0.7)
    options = {**FEW, "cache": partial(Cache, tmp_path), "replicates": [load]}
    found = compare_models(*two, [measure], **options)
    row = found.table.iloc[0]
    assert row["after"] == pytest.approx((13 / 12 + 3) / 2)
    assert row["spread"] == pytest.approx(np.std([13 / 12, 3], ddof=1))
    assert found.items["after_2"].tolist() == [3.0] * 12
    assert [record.name for record in found.record.replicates] == ["again"]
    compare_models(*two, [measure], **options)
    assert measure.asked == ["before", "after", "again"]  # the second time all parts are there
    found.with_record(settings={}).save(tmp_path / "run")
    saved = ModelComparison.load(tmp_path / "run")
    pd.testing.assert_frame_equal(saved.items, found.items)
    assert saved.record.replicates == found.record.replicates


@pytest.mark.parametrize(
    ("margin", "kept", "said"),
    [
        (5.0, "pass", "no quality is lost beyond the non-inferiority margins (guards)."),
        (1.0, "fail", "quality is lost (number)."),
    ],
)
def test_a_row_holds_the_means_of_the_items_and_their_guard(two, margin, kept, said, tmp_path):
    guard = Guard(margin, 1, "so much")
    found = compare_models(*two, [MadeUp(changed(), guard=guard)], **FEW)
    row = found.table.iloc[0]
    assert (row["before"], row["after"], row["change"]) == pytest.approx((0, 13 / 12, 13 / 12))
    assert (row["guard"], row["items"], row["clusters"], row["unpaired"]) == (kept, 12, 6, 0)
    assert row["p_holm"] == row["p"] == 2 / 2**6
    assert comparison_finding(found).result[0].endswith(said)
    found.save(tmp_path)
    pd.testing.assert_frame_equal(ModelComparison.load(tmp_path).table, found.table)


def test_a_loss_that_chance_explains_is_said_to_be_one(two):
    after, guard = [9.0, 9.0, -7.0, -7.0] * 2 + [1.0] * 4, Guard(0.5, 1, "so much")
    found = compare_models(
        *two, [MadeUp(changed(after=after), guard=guard)], config=CompareConfig(n_flips=999)
    )
    assert found.table["guard"].tolist() == ["fail"]
    assert comparison_finding(found).result[0].endswith("which chance could explain.")


@pytest.mark.parametrize(
    ("after", "verdict", "line"),
    [
        (0.1, "after is less biased than before in", "smaller in size"),
        (1.1, "after is more biased than before in", "not smaller in size"),
        (-0.5, "the bias turns round from before to after in", "on the other side of neutral"),
    ],
)
def test_a_bias_beyond_neutral_is_neither_less_nor_more_but_turned_round(two, after, verdict, line):
    """The test is of the signed change; the sizes on two sides of neutral are not tested."""
    values = {"before": [0.6] * 11 + [0.7], "after": [after] * 12}
    found, primary, *_ = comparison_finding(compare_models(*two, [MadeUp(values)], **FEW)).result
    assert found.startswith(f"{verdict} number (0.608 to {after:.3f}, Holm p 0.0312)")
    assert f"0.608 to {after:.3f}, {line}; this is more than chance" in primary


def test_items_of_one_model_alone_are_counted_and_only_an_interval_rules_changes_out(two):
    found = compare_models(*two, [MadeUp(changed(after=[1.0] * 14))], **FEW)
    row = found.table.iloc[0]
    assert (row["items"], row["unpaired"], row["change"]) == (12, 2, 1)
    assert len(found.items) == 12
    assert comparison_finding(found).power == []
    found = comparison_finding(compare_models(*two, [MadeUp(changed())], **FEW))
    assert found.power[0].endswith("is ruled out (95%, over clusters).")


def test_every_outcome_of_every_measure_has_a_row_that_its_items_give(two):
    """The real measures on tiny models: means over the saved items, by hand."""
    triples = load_triples("starter", category="gender", limit=3)
    sentences = [
        SentenceTriple(str(n), f"g{n // 2}", "gender", f"The man {w}", "The man knew", "He man", "")
        for n, w in enumerate(["said", "knew that", "felt", "wrote"])
    ]
    measures = [
        triple_measure(triples, make_twins(triples), {"source": "starter"}),
        sentence_measure(sentences, {"source": "here"}),
        *(pair_measure(load_pairs(name, limit=1)) for name in ("winobias", "winogender")),
        pair_measure(load_pairs("blimp", groups=AGREEMENT, limit=4)),
        perplexity_measure(TEXT, width=32),
        divergence_measure(TEXT, width=32),
    ]
    found = compare_models(*two, measures, **FEW)
    table = found.table.set_index("outcome")
    for name, own in found.items.groupby("outcome"):
        for side in ("before", "after"):
            expected = np.average(own[side], weights=own["weight"])
            assert table.loc[name, side] == pytest.approx(expected, rel=1e-9), (name, side)
    expected = {
        "beta_sum_gender", "beta_mean_gender", "log_odds_gender", "ss_sum_gender",
        "ss_mean_gender", "lms_sum", "lms_mean", "intrasentence_log_odds_gender",
        "intrasentence_ss_mean_gender", "intrasentence_beta_sum_gender",
        "winobias_type1", "winobias_type2",
        "winogender_occupation", "winogender_participant", "log_perplexity", "blimp",
        "blimp_gender_agreement", "kl_divergence",
    }  # fmt: skip
    assert expected <= set(table.index)
    assert set(table.index[table["primary"]]) == {"beta_sum_gender"}
    assert set(table.index[table["guard"] != ""]) == {"lms_mean", "log_perplexity", "blimp"}
    assert table.loc["kl_divergence", "before"] == 0
    assert table.loc["kl_divergence", "change"] > 0
    assert np.isnan(table.loc["kl_divergence", "p"])
    assert table["items"].gt(0).all()
    figure = plot_comparison(found)
    assert unseen(figure) == []


def test_scores_of_the_measures_are_those_of_the_commands(two):
    """Means over weighted items against the tables of ``stereoset`` and ``pairs``."""
    triples = load_triples("starter", category="gender", limit=4)
    twins = make_twins(triples)
    blimp = load_pairs("blimp", groups=AGREEMENT, limit=4)
    wino = load_pairs("winobias", groups=["nurse", "chief"], limit=2)
    measures = [
        triple_measure(triples, twins, {}),
        pair_measure(blimp),
        pair_measure(wino),
        perplexity_measure(TEXT, width=32),
    ]
    found = compare_models(*two, measures, **FEW).table.set_index("outcome")
    for side, model in zip(("before", "after"), two, strict=True):
        stereo = stereoset_scores(model, triples, twins=twins)
        scores = stereo.scores.set_index(["scoring", "group"])
        beta = stereo.beta.set_index(["scoring", "group"])
        for scoring in ("sum", "mean"):
            row = scores.loc[(scoring, "all")]
            assert found.loc[f"ss_{scoring}_gender", side] == pytest.approx(row["ss"])
            assert found.loc[f"lms_{scoring}", side] == pytest.approx(row["lms"])
            expected = beta.loc[(scoring, "all"), "beta"]
            assert found.loc[f"beta_{scoring}_gender", side] == pytest.approx(expected)
        accuracy = pair_set_scores(model, blimp).record.official.headline
        assert found.loc["blimp", side] == pytest.approx(accuracy["accuracy"])
        odds = pair_set_scores(model, wino).record.official.headline
        for kind in ("type1", "type2"):
            assert found.loc[f"winobias_{kind}", side] == pytest.approx(odds[f"log_odds_{kind}"])
        ppl = log_perplexity(model, text_windows(model, TEXT.text, width=32)).mean
        assert found.loc["log_perplexity", side] == pytest.approx(ppl)


def test_sentences_have_the_twins_that_a_swap_gives_and_beta_is_their_difference(two):
    """By hand from single texts; an item that the swap does not change has none."""
    texts = [
        ("The man cried.", "The man knew.", "The man he."),
        ("The cook knew.", "The cook cried.", "The cook he."),
    ]
    sentences = [SentenceTriple(str(n), "man", "gender", *own, "") for n, own in enumerate(texts)]
    measure = sentence_measure(sentences, {})
    assert {name: twin.texts() for name, twin in sentence_twins(sentences).items()} == {
        "0": ("The woman cried.", "The woman knew.", "The woman she.")
    }
    items = measure.items(two[0], batch_size=8).set_index(["outcome", "item"])["value"]
    pairs = [texts[0][:2], ("The woman cried.", "The woman knew.")]
    found = TextReader(two[0]).read([Contrast(pair) for pair in pairs])["log_prob"]
    odds = [more.sum() - less.sum() for more, less in found]
    expected = odds[0] - odds[1]
    assert items["intrasentence_beta_sum_gender", "0"] == pytest.approx(expected, abs=1e-4)
    assert ("intrasentence_beta_sum_gender", "1") not in items.index


def test_a_measure_that_a_model_cannot_answer_is_refused_or_listed(two):
    class Unanswered(MadeUp):
        def items(self, model, **options):
            raise InputError("no such words")

    measures = [MadeUp(changed()), Unanswered({}, name="words")]
    with pytest.raises(InputError, match="no such words"):
        compare_models(*two, measures, **FEW)
    found = compare_models(*two, measures, **FEW, unanswered="leave_out")
    assert found.record.not_measured == (NotMeasured(name="words", reason="no such words"),)
    with pytest.raises(InputError, match="nothing could be measured; words: no such words"):
        compare_models(*two, measures[1:], unanswered="leave_out")


# -- other vocabularies, files, resuming -----------------------------------------------------------


def test_models_with_other_tokenizers_are_compared_in_what_they_share(two, tiny):
    other = tiny("gpt2")
    found = compare_models(
        two[0],
        LanguageModel(other.hf_model, other.tokenizer, "after"),
        [MadeUp(changed()), perplexity_measure(TEXT, width=32), divergence_measure(TEXT, width=32)],
        **FEW,
    )
    table = found.table.set_index("outcome")
    assert "kl_divergence" not in table.index
    assert table.loc["log_perplexity", "reason"].endswith("other tokenizers")
    assert table.loc["log_perplexity", "guard"] == "inconclusive"
    assert "a loss of quality is not ruled out" in comparison_finding(found).result[0]
    assert found.record.not_measured == (
        NotMeasured(name="divergence", reason="the models have other vocabularies"),
    )


def test_a_stopped_comparison_goes_on_and_no_resume_starts_over(two, tmp_path):
    first = MadeUp(changed())

    class Stopped(MadeUp):
        def items(self, model, **options):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare_models(*two, [first, Stopped({}, name="b")], **FEW, cache=partial(Cache, tmp_path))
    again = MadeUp(changed())
    found = compare_models(*two, [again], **FEW, cache=partial(Cache, tmp_path))
    assert (first.asked, again.asked) == (["before", "after"], [])
    fresh = compare_models(*two, [again], **FEW, cache=partial(Cache, tmp_path, resume=False))
    assert again.asked == ["before", "after"]
    pd.testing.assert_frame_equal(found.table, fresh.table)
    pd.testing.assert_frame_equal(found.items, fresh.items)


def test_a_text_that_repeats_itself_gives_each_window_a_name_of_its_own(two):
    repeated = NeutralText("he wrote. " * 400, "here", None)
    measure = perplexity_measure(repeated, width=32)
    items = measure.items(two[0], batch_size=32)
    assert not items["item"].duplicated().any()
    windows = text_windows(two[0], repeated.text, width=32)
    assert len({tuple(ids) for ids in windows.ids}) < windows.of  # some are alike
    found = compare_models(*two, [measure], **FEW)
    assert found.table["items"].tolist() == [len(items)]
