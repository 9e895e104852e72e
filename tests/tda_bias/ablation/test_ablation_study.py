"""The composition of an ablation: which heads, against which random sets, and what agrees."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.brief import ablation_brief
from tda_bias.ablation.study import AblationStudy, ablation_study, set_tests
from tda_bias.config import HeadBiasConfig, StudyConfig
from tda_bias.heads.head_bias import head_bias
from tda_bias.store.cache import Cache
from tda_bias.twins import make_twins
from tda_bias.types import HeadId, InputError


@pytest.fixture(scope="module")
def triples(gender):
    return gender[:7]


@pytest.fixture(scope="module")
def run(tiny, gender):
    return head_bias(tiny("gpt2"), gender, twins=None, config=HeadBiasConfig(n_permutations=99))


def study(tiny, run, triples, **more):
    ablator = Ablator(tiny("gpt2"), triples)
    config = StudyConfig(**{"top": 1, "n_permutations": 99, **more})
    return ablation_study(ablator, run, category="gender", config=config)


def test_a_study_holds_the_top_heads_against_random_ones(tiny, run, triples):
    found = study(tiny, run, triples)
    effects = found.effects
    assert effects["kind"].value_counts()["random_set"] == 3  # of four heads, three others
    top = run.top(1)
    name = f"L{top['layer'][0]}H{top['head'][0]}"
    assert effects[effects["kind"] == "top"]["heads"].tolist() == [name]
    ablator = Ablator(tiny("gpt2"), triples)
    base, without = ablator.without([(), [HeadId(top["layer"][0], top["head"][0])]])
    row = effects[effects["kind"] == "top_set"].iloc[0]
    change = without.summary()["log_odds"] - base.summary()["log_odds"]
    assert row["d_log_odds"] == pytest.approx(change, abs=1e-6)
    test = found.set_tests.set_index("outcome").loc["log_odds"]
    null = effects[effects["kind"] == "random_set"]["d_log_odds"]
    assert test["p"] == (1 + (null.abs() >= abs(change) - 1e-12).sum()) / 4
    tables = (found.effects, found.heads, found.agreement)
    assert not [name for table in tables for name in table if "beta" in name]  # without twins
    pd.testing.assert_frame_equal(study(tiny, run, triples).agreement, found.agreement)
    exact = found.heads.set_index(["layer", "head"])["exact"]
    assert exact[(top["layer"][0], top["head"][0])] == pytest.approx(change, abs=1e-6)


@pytest.fixture(scope="module")
def twins(triples):
    made = make_twins(triples)
    return [made.of(triple) for triple in triples]


def test_with_twins_every_table_has_effects_on_beta(tiny, run, triples, twins):
    """From log-odds of triples and twins that are read one list after the other."""
    assert all(twins)
    with_twins = Ablator(tiny("gpt2"), triples, twins=twins)
    found = ablation_study(
        with_twins, run, category="gender", config=StudyConfig(top=1, n_permutations=99)
    )
    model = tiny("gpt2")
    as_triples = [
        replace(twin, unrelated=triple.unrelated)
        for triple, own in zip(triples, twins, strict=True)
        for twin in own
    ]
    ablators = [Ablator(model, texts, ablation="mean") for texts in (triples, as_triples)]
    ablators[1]._remover.replacement = ablators[0].replacement

    def beta(heads):
        odds = [one.without([heads])[0].log_odds for one in ablators]
        per_triple = np.split(odds[1], np.cumsum([len(own) for own in twins])[:-1])
        return float(np.mean(odds[0] - [own.mean() for own in per_triple]))

    base = beta(())
    assert found.record.base["beta"] == pytest.approx(base, abs=1e-5)
    assert found.record.twinned == len(triples)
    for row in found.effects.to_dict("records"):
        heads = [HeadId(*map(int, name[1:].split("H"))) for name in row["heads"].split()]
        assert row["d_beta"] == pytest.approx(beta(heads) - base, abs=1e-5)
    test = found.set_tests.set_index("outcome").loc["beta"]
    null = found.effects.query("kind == 'random_set'")["d_beta"].abs()
    assert test["p"] == (1 + (null >= abs(test["effect"]) - 1e-12).sum()) / (1 + len(null))
    exact = found.heads["exact_beta"].dropna()
    single = found.effects[~found.effects["heads"].str.contains(" ")]
    expected = sorted(single.drop_duplicates("heads")["d_beta"])
    np.testing.assert_allclose(sorted(exact), expected)
    assert found.heads["effect_beta"].notna().all()
    expected = found.heads["importance"].corr(found.heads["effect_beta"].abs(), "spearman")
    agreement = found.agreement.set_index("ranking")
    assert agreement.loc["importance", "rho_effect_beta"] == pytest.approx(expected)
    assert agreement.loc["abs_effect_beta", "n_exact_beta"] == len(exact)


def test_a_study_with_twins_is_read_as_it_was_saved(tiny, run, triples, twins, tmp_path):
    ablator = Ablator(tiny("gpt2"), triples, twins=[*twins[:-1], ()])
    found = ablation_study(
        ablator, run, category="gender", config=StudyConfig(top=1, n_permutations=99)
    )
    found = found.with_record(twins={"twins": 6})
    found.save(tmp_path)
    again = AblationStudy.load(tmp_path)
    for name in ("effects", "set_tests", "heads", "agreement"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(found, name))
    assert again.outcomes == ["beta", "log_odds"]
    assert (again.record.twinned, again.record.triples) == (6, 7)


def test_a_stopped_study_goes_on(tiny, run, triples, tmp_path):
    cache = Cache(tmp_path, {"a": 1})

    def stop(done, total):
        assert 0 < done < total
        raise KeyboardInterrupt

    ablator = Ablator(tiny("gpt2"), triples, batch_size=6)
    with pytest.raises(KeyboardInterrupt):
        ablation_study(
            ablator, run, category="gender", cache=cache, progress=stop, config=StudyConfig(top=1)
        )
    assert len(list(tmp_path.glob("*.npz"))) == 1
    resumed = ablation_study(
        ablator, run, category="gender", cache=cache, config=StudyConfig(top=1)
    )
    whole = ablation_study(ablator, run, category="gender", config=StudyConfig(top=1))
    pd.testing.assert_frame_equal(resumed.effects, whole.effects)


def test_too_many_heads_or_too_few_draws_are_refused(tiny, run, triples):
    with pytest.raises(InputError, match="`top` must lie between 1 and 2 for 8 heads; got 3"):
        study(tiny, run, triples, top=3)
    with pytest.raises(InputError, match="`n_random` must be at least 20; got 19"):
        study(tiny, run, triples, n_random=19)


@pytest.mark.parametrize(
    ("value", "percentile", "p"),
    [(0.0, 50.0, 1.0), (3e-7, 50.0, 1.0), (0.1, 100.0, 0.25), (-0.1, 0.0, 0.25)],
)
def test_a_set_that_does_as_much_as_random_ones_stands_in_their_middle(value, percentile, p):
    effects = pd.DataFrame(
        {"kind": ["top_set", *["random_set"] * 3], "d_log_odds": [value, 0.0, 1e-7, -1e-7]}
    )
    row = set_tests(effects).iloc[0]
    assert row["percentile"] == percentile
    assert row["p"] == p


@pytest.mark.parametrize(
    ("change", "side"),
    [(-0.1, " towards 0, more"), (0.1, " away from 0, more"), (-0.55, " past 0, more")],
)
def test_which_way_an_outcome_goes_is_said_where_it_is_found(tiny, run, triples, change, side):
    found = study(tiny, run, triples)
    name = found.primary[0]
    record = found.record.model_copy(
        update={"base": {**found.record.base, name: 0.3}, "n_random": 99}
    )
    tests = found.set_tests.assign(p=0.01, effect=change)
    said = ablation_brief(replace(found, set_tests=tests, record=record)).said
    assert side in said


def test_what_is_said_of_the_bias_in_bbq_stands_alone_and_beside_that_of_triples(
    tiny, run, triples
):
    """The effects on the log-odds are given as those on the bias in BBQ."""
    found = study(tiny, run, triples)
    as_bbq = {"outcome": found.set_tests["outcome"].replace("log_odds", "bbq_bias")}
    base = {**found.record.base, "bbq_bias": 0.25, "bbq_accuracy": 0.5}
    heads = found.heads.rename(columns={"effect": "effect_bbq_bias"})
    alone = replace(
        found,
        set_tests=found.set_tests.assign(**as_bbq),
        heads=heads,
        agreement=found.agreement.assign(rho_effect_bbq_bias=0.5, p_effect_bbq_bias=0.2),
        record=found.record.model_copy(update={"base": base}),
    )
    both = replace(
        alone,
        heads=heads.assign(effect=found.heads["effect"]),
        set_tests=pd.concat([found.set_tests, alone.set_tests]),
    )
    for one, number in ((alone, 1), (both, 2)):
        brief = ablation_brief(one)
        changed = [line.label for line in brief.lines if line.label.startswith("change")]
        assert "change of bias in BBQ's ambiguous questions" in changed
        assert len(changed) == number
        assert any("disambiguated questions" in remark for remark in brief.remarks)
