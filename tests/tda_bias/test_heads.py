"""The whole run on tiny models: against a literal recomputation, and what must not matter."""

from dataclasses import replace
from itertools import product

import numpy as np
import ot
import pandas as pd
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.stats import false_discovery_control

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.heads.finding import heads_finding, run_remarks
from tda_bias.heads.group_result import adjust_for_length
from tda_bias.heads.group_statistic import group_statistic
from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.resampled import paper_pvalue
from tda_bias.store.cache import Cache
from tda_bias.twins import make_twins
from tda_bias.types import InputError, Triple
from tests.support.models import tiny_hf_model

QUICK = HeadBiasConfig(n_permutations=99)
NUMBERS = ["S", "relative", "var_stereotype", "var_anti", "var_unrelated", "T", "p_paper"]


def quick(**changes) -> HeadBiasConfig:
    return QUICK.model_copy(update=changes)


@pytest.fixture(scope="module")
def gpt2(tiny):
    return tiny("gpt2")


@pytest.fixture(scope="module")
def girl(gender):
    return [triple for triple in gender if triple.group == "girl"]


@pytest.fixture(scope="module")
def plain(gpt2, gender):
    """A run without twins; nobody changes it."""
    return head_bias(gpt2, gender, twins=None, config=QUICK)


# -- the definition --


def literal_steps(values: np.ndarray, n_steps: int) -> np.ndarray:
    """Averages of the pseudo-inverse on a grid that both the values and the steps divide."""
    fine = np.repeat(values, n_steps)
    return fine.reshape(n_steps, len(values)).mean(1)


def literal_sets(pattern: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(pattern)
    edges = pattern[np.tril_indices(n, -1)]
    weights = np.tril(pattern, -1) + np.tril(pattern, -1).T
    tree = minimum_spanning_tree(np.where(np.eye(n), 0, 2 - weights)).toarray()
    births = np.sort(2 - tree[tree > 0])
    rest = list(np.sort(edges))
    for birth in births:
        rest.pop(int(np.argmin(np.abs(np.array(rest) - birth))))
    return births, np.array(rest)


@torch.no_grad()
def literal_patterns(model, texts: list[str]) -> list[np.ndarray]:
    """Text by text, from Hugging Face's own attentions of a model that was never hooked."""
    hf_model = tiny_hf_model("gpt2", len(model.tokenizer))
    patterns = []
    for text in texts:
        ids = torch.tensor([model.tokenizer(text)["input_ids"]])
        attentions = hf_model(input_ids=ids, output_attentions=True).attentions
        patterns.append(torch.cat(attentions).double().numpy())
    return patterns


def literal_steps_of(model, texts: list[str]) -> dict[tuple[int, int, int], np.ndarray]:
    """Step functions of all texts on one grid, by dimension, layer and head."""
    patterns = literal_patterns(model, texts)
    found = {}
    for dim, layer, head in np.ndindex(2, *patterns[0].shape[:2]):
        sets = [literal_sets(p[layer, head])[dim] for p in patterns]
        n_steps = max(map(len, sets))
        found[dim, layer, head] = np.array([literal_steps(v, n_steps) for v in sets])
    return found


def n_tokens_of(model, text: str) -> int:
    return len(model.tokenizer(text)["input_ids"])


def texts_of(triples: list[Triple]) -> list[str]:
    return [text for triple in triples for text in triple.texts()]


@pytest.mark.parametrize("adjust", ["none", "length"])
def test_the_table_holds_the_statistic_computed_text_by_text(gpt2, girl, adjust):
    steps = literal_steps_of(gpt2, texts_of(girl))
    table = head_bias(gpt2, girl, twins=None, config=quick(adjust=adjust)).table
    n_tokens = np.array([[n_tokens_of(gpt2, text) for text in t.texts()[:2]] for t in girl])
    assert len(table) == 2 * 2 * 4
    for row in table.to_dict("records"):
        f = steps[row["dim"], row["layer"], row["head"]]
        stat = group_statistic(f[0::3], f[1::3], f[2::3])
        if adjust == "length":
            stat = adjust_for_length(stat, n_tokens)
        for name in ("S", "relative", "var_stereotype", "var_anti", "var_unrelated"):
            np.testing.assert_allclose(row[name], getattr(stat, name), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(
            row["T"], (1 - paper_pvalue(stat)) * stat.S, rtol=1e-3, atol=1e-6
        )


def test_variances_of_texts_of_one_length_are_half_the_mean_of_pots_distances(gpt2, girl):
    """Of a cluster in one dimension: no centre is needed to know its variance."""

    def beginning(text: str) -> str:
        return " ".join(gpt2.tokenizer.tokenize(text)[:12])

    begun = [Triple("girl", "gender", "", *map(beginning, t.texts())) for t in girl]
    triples = [t for t in begun if t.stereotype != t.anti_stereotype]
    patterns = literal_patterns(gpt2, texts_of(triples))
    table = head_bias(gpt2, triples, twins=None, config=QUICK).table
    for dim in range(2):
        row = table.query("dim == @dim and layer == 1 and head == 2").iloc[0]
        sets = [literal_sets(pattern[1, 2])[dim] for pattern in patterns]
        for role, name in enumerate(("var_stereotype", "var_anti", "var_unrelated")):
            cluster = sets[role::3]
            pairs = [ot.wasserstein_1d(f, g, p=2) for f in cluster for g in cluster]
            np.testing.assert_allclose(row[name], np.mean(pairs) / 2, rtol=1e-3, atol=1e-8)


def test_twins_give_the_contrasts_computed_text_by_text(gpt2, girl):
    """As the definitions say, over all texts that are read: three of each triple, two of a twin."""
    twins = make_twins(girl)
    assert len(twins) == len(girl)
    table = head_bias(gpt2, girl, twins=twins, config=QUICK).table
    texts = texts_of(girl) + [text for t in girl for text in twins.of(t)[0].texts()[:2]]
    n = len(girl)
    for (dim, layer, head), f in literal_steps_of(gpt2, texts).items():
        s, a, u = f[0 : 3 * n : 3], f[1 : 3 * n : 3], f[2 : 3 * n : 3]
        s_twin, a_twin = f[3 * n :: 2], f[3 * n + 1 :: 2]
        place = (table["dim"] == dim) & (table["layer"] == layer) & (table["head"] == head)
        row = table[place].iloc[0]
        assert row["n_steps"] == f.shape[1]
        np.testing.assert_allclose(row["S"], group_statistic(s, a, u).S, rtol=1e-3)
        D, E = s - a, (s - a) - (s_twin - a_twin)
        for name, values in (("location", D), ("location_twin", E)):
            expected = (values.sum(0) ** 2).sum() / (values**2).sum()
            np.testing.assert_allclose(row[name], expected, rtol=1e-3, err_msg=name)
        centre = (s.mean(0) + a.mean(0) + s_twin.mean(0) + a_twin.mean(0)) / 4
        q_s, q_a, q_s_twin, q_a_twin = (
            ((values - centre) ** 2).mean(1) for values in (s, a, s_twin, a_twin)
        )
        numerator = np.mean((q_a - q_s) - (q_a_twin - q_s_twin))
        expected = numerator / np.mean(q_s + q_a + q_s_twin + q_a_twin)
        np.testing.assert_allclose(row["relative_twin"], expected, rtol=1e-3, atol=1e-6)
        signs = np.array(list(product([1, -1], repeat=n)))
        null = np.array([((f[:, None] * E).sum(0) ** 2).sum() / (E**2).sum() for f in signs])
        expected = np.mean(null >= row["location_twin"] - 1e-4)
        np.testing.assert_allclose(row["p_location_twin"], expected, atol=2 / len(signs))


def test_the_table_has_its_columns_in_order(plain):
    columns = (
        "model category group layer head dim n n_steps var_stereotype var_anti var_unrelated S "
        "relative unstable length_statistic p_paper T p_paired p_label p_max q_bh location "
        "p_location p_max_location q_location reason"
    )
    assert list(plain.table.columns) == columns.split()
    assert len(plain.table) == 2 * 2 * 2 * 4  # groups x dimensions x layers x heads


# -- what must not matter --


def same(first: pd.DataFrame, second: pd.DataFrame) -> None:
    assert list(first["group"]) == list(second["group"])
    for name in NUMBERS:
        np.testing.assert_allclose(first[name], second[name], rtol=2e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "t5"])
def test_numbers_do_not_depend_on_batches_or_shared_prefixes(tiny, gender, kind, monkeypatch):
    model = tiny(kind)
    shared = head_bias(model, gender, twins=None, config=quick(batch_size=7))
    sharing = {group.prefix_sharing[:2] for group in shared.record.groups}
    assert sharing == ({"on"} if kind in ("gpt2", "llama") else {"of"})
    monkeypatch.setattr(PatternReader, "sharing", "off")
    same(shared.table, head_bias(model, gender, twins=None, config=quick(batch_size=1)).table)


def test_a_seed_fixes_everything_and_the_order_of_triples_and_groups_does_not_matter(
    gpt2, gender, plain
):
    again = head_bias(gpt2, gender, twins=None, config=QUICK)
    for name in ("table", "combined", "category", "groups"):
        pd.testing.assert_frame_equal(getattr(plain, name), getattr(again, name))
    other = head_bias(gpt2, gender[6:] + gender[:6], twins=None, config=quick(seed=1))
    same(plain.table, other.table)
    # Of six contexts all flips are enumerated.
    pd.testing.assert_series_equal(plain.table["p_paired"], other.table["p_paired"])


# -- settings that must matter --


@pytest.mark.parametrize("pvalue", ["paired", "label", "paper"])
def test_q_belongs_to_the_chosen_p(gpt2, girl, pvalue):
    table = head_bias(gpt2, girl, twins=None, config=quick(pvalue=pvalue)).table
    for _, rows in table.groupby("group"):
        expected = false_discovery_control(rows[f"p_{pvalue}"])
        np.testing.assert_allclose(rows["q_bh"], expected)


def test_combined_values_are_means_over_dimensions_and_z_over_heads(plain):
    keys = ["group", "layer", "head"]
    for column, source in (("metric", "T"), ("statistic", "S"), ("relative", "relative")):
        expected = plain.table.groupby(keys)[source].mean().reset_index()
        merged = plain.combined.merge(expected, on=keys)
        np.testing.assert_allclose(merged[f"combined_{column}"], merged[source].to_numpy())
        for _, rows in plain.combined.groupby("group"):
            size = rows[f"combined_{column}"].abs()
            z = (size - size.mean()) / size.std(ddof=0)
            np.testing.assert_allclose(rows[f"z_{column}"], z, atol=1e-9)
    means = plain.combined.groupby(["layer", "head"])["z_relative"].mean().to_numpy()
    np.testing.assert_allclose(plain.category["z_relative"], means)


def test_groups_hold_the_mean_and_the_extremes_over_heads(plain):
    for row in plain.groups.to_dict("records"):
        values = plain.combined.query("group == @row['group']")["combined_metric"]
        found = [row[f"metric_{name}"] for name in ("mean", "min", "max")]
        np.testing.assert_allclose(found, [values.mean(), values.min(), values.max()])
        assert row["n"] == 6


# -- the record --


def test_the_record_says_what_was_run(tiny, gender):
    record = head_bias(tiny("llama"), gender, twins=None, config=QUICK).record
    assert record.command == "heads"
    assert record.config.n_permutations == 99
    assert record.model.architecture == "LlamaForCausalLM"
    assert record.texts.triples_used == 12
    assert [group.group for group in record.groups] == ["boy", "girl"]
    for group in record.groups:
        assert group.prefix_sharing.startswith("on")
        assert group.row_sums.failed == {}
    assert record.packages["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"forward", "topology", "statistic", "inference"} <= set(record.seconds)


def test_progress_counts_every_text_once_and_the_mode_of_the_model_is_restored(tiny, gender):
    model, seen = tiny("gpt2"), []
    model.bridge.train()
    config = quick(batch_size=7)
    head_bias(model, gender, twins=None, config=config, progress=lambda *a: seen.append(a))
    assert model.hf_model.training
    assert seen[-1] == (36, 36)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


# -- what goes wrong --


def short(text: str) -> Triple:
    return Triple("girl", "gender", text, "ran", "danced", "slept", source=f"item {text}")


def test_a_text_without_a_value_is_left_out_and_counted(gpt2, gender, plain):
    found = head_bias(gpt2, [*gender, short("Girls")], twins=None, config=QUICK)
    (left_out,) = found.record.texts.triples_left_out
    assert left_out["source"] == "item Girls"
    assert "fewer than 3 tokens" in left_out["reason"]
    same(plain.table, found.table)


def test_what_is_no_model_no_triples_or_too_few_is_refused(gpt2, gender):
    with pytest.raises(InputError, match="`triples` is empty"):
        head_bias(gpt2, [], twins=None, config=QUICK)
    boys = [triple for triple in gender if triple.group == "boy"]
    with pytest.raises(InputError, match=r"the group 'boy' \(gender\) has 1 usable triple"):
        head_bias(gpt2, boys[:1], twins=None, config=QUICK)
    # A bridge of one's own may show other patterns than the model has.
    for given, kind in (("gpt2", "str"), (gpt2.bridge, "TransformerBridge")):
        with pytest.raises(InputError, match=f"must come from tda_bias.load_model .*; got {kind}"):
            head_bias(given, gender, twins=None)


# -- going on after a stop --


class StopError(Exception):
    pass


def test_a_stopped_run_goes_on_where_it_was_and_serves_other_tests_without_the_model(
    gpt2, gender, plain, tmp_path, monkeypatch
):
    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise StopError

    def cache(identity):
        return Cache(tmp_path, identity)

    with pytest.raises(StopError):
        head_bias(gpt2, gender, twins=None, config=QUICK, cache=cache, progress=stop)
    assert len(list(tmp_path.glob("*.npz"))) == 1
    seen = []
    resumed = head_bias(
        gpt2, gender, twins=None, config=QUICK, cache=cache, progress=lambda *a: seen.append(a)
    )
    assert seen[0] == (18, 36)
    pd.testing.assert_frame_equal(resumed.table, plain.table)
    pd.testing.assert_frame_equal(resumed.category, plain.category)
    pd.testing.assert_frame_equal(resumed.groups, plain.groups)
    shared = [group.prefix_sharing for group in resumed.record.groups]
    assert all(text.startswith("on: patterns equal") for text in shared)
    monkeypatch.setattr(PatternReader, "_run", None)
    found = head_bias(gpt2, gender, twins=None, config=quick(pvalue="label"), cache=cache)
    assert found.record.config.pvalue == "label"
    with pytest.raises(InputError, match="edges was 'attention', now 'output'"):
        head_bias(gpt2, gender, twins=None, config=quick(edges="output"), cache=cache)


def test_several_categories_are_ranked_apart(tiny, heads_run):
    result, race = heads_run, load_triples("starter", category="race", limit=4)
    assert result.categories == ["gender", "profession", "race", "religion"]
    alone = head_bias(tiny("gpt2"), race, twins=None, config=QUICK)
    np.testing.assert_allclose(result.category_map("race"), alone.category_map(), atol=1e-6)
    pd.testing.assert_frame_equal(result.top(3, category="race"), alone.top(3), atol=1e-6)


@pytest.mark.parametrize("twinned", [0, 1])
def test_a_category_without_twins_is_ranked_without_beside_one_with_twins(gpt2, gender, twinned):
    """One twin in a group is nothing to test."""
    age = [replace(triple, category="age") for triple in gender if triple.group == "girl"]
    twins = make_twins([*gender, *age[:twinned]])
    result = head_bias(gpt2, [*gender, *age], twins=twins, config=QUICK)
    alone = head_bias(gpt2, age, twins=twins.only(age), config=QUICK)
    pd.testing.assert_frame_equal(result.top(8, category="age"), alone.top(8))
    assert result.top(8, category="age")["z"].notna().all()
    found = {category: heads_finding(result, category) for category in result.categories}
    said = {c: " ".join([*finding.result, *finding.control]) for c, finding in found.items()}
    assert "(Dispersion test, triple minus twin)" in said["gender"]
    assert "(Dispersion test)" in said["age"]
    assert "No twins: wording and length are in every difference of age." in said["age"]
    kept = {*result.texts_to_keep(1)[["category", "role"]].itertuples(index=False, name=None)}
    assert {("gender", "twin stereotype"), ("age", "stereotype")} <= kept


# The tokenizer writes what it does not know as one token.
UNSEEN = Triple("girl", "gender", "The girl sat.", "She zzz.", "She qqq.", "She wept.")


def test_texts_that_the_tokenizer_writes_alike_are_not_tested(gpt2, girl):
    with pytest.raises(InputError, match="writes texts alike .* in each of 3 triples"):
        head_bias(gpt2, [UNSEEN] * 3, twins=None, config=QUICK)
    plain = head_bias(gpt2, girl, twins=None, config=QUICK)
    found = head_bias(gpt2, [*girl, replace(UNSEEN, source="here")], twins=None, config=QUICK)
    pd.testing.assert_frame_equal(found.table, plain.table)
    (left_out,) = found.record.texts.triples_left_out
    assert left_out["source"] == "here"
    assert "writes the two texts alike" in left_out["reason"]
    with pytest.raises(InputError, match="0 usable triple, .* .2 left out: the tokenizer writes"):
        head_bias(gpt2, [*girl, *[replace(UNSEEN, group="boy")] * 2], twins=None, config=QUICK)


def test_twins_that_the_tokenizer_writes_like_their_originals_take_no_part(gpt2, girl):
    triples = [*girl, replace(girl[0], context="The zzz sat.")]
    made = make_twins(girl)
    unseen = replace(triples[-1], context="The qqq sat.")
    both = replace(made, pairs=(*made.pairs, (triples[-1], (unseen,))))
    found = head_bias(gpt2, triples, twins=both, config=QUICK)
    assert "1 of 7 twins is left out: the tokenizer writes" in " ".join(run_remarks(found))
    assert found.record.twins["twins"] == 6
    plain = head_bias(gpt2, triples, twins=made, config=QUICK)
    pd.testing.assert_frame_equal(found.table, plain.table)


@pytest.mark.parametrize(("twins", "rank_by"), [("auto", "evidence"), (None, "location")])
def test_an_adjustment_of_what_is_not_ranked_is_refused(gpt2, gender, twins, rank_by):
    config = HeadBiasConfig(adjust="length", rank_by=rank_by)
    with pytest.raises(InputError, match=f"`adjust` length .* `rank_by` {rank_by}"):
        head_bias(gpt2, gender, twins=twins, config=config)
