"""What a run will take: counted where it can be counted, and near what runs of any size take."""

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.cost import _Numbers, _Trial, estimated_cost, flops
from tda_bias.heads.head_bias import tokenized_groups
from tda_bias.heads.passes import ContextTexts
from tda_bias.heads.patterns import PatternReader
from tda_bias.models.load import hook_model
from tda_bias.runs.cache import PartStore
from tda_bias.twins import make_twins
from tests.support.models import tiny_hf_model

QUICK = HeadBiasConfig(n_resamples=99)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "t5", "distilbert"])
def test_operations_are_those_that_torch_counts_at_any_length(tokenizer, kind):
    model = hook_model(tiny_hf_model(kind, len(tokenizer)), tokenizer, name=kind)
    texts = ContextTexts((list(range(5, 45)), list(range(9, 49))), 0)
    with FlopCounterMode(display=False) as counter:
        list(PatternReader(model, batch_size=2).read([texts]))
    assert flops(model, [40, 40]) == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_operations_of_a_llama_are_two_per_weight_and_token_and_two_per_entry_and_width(tiny):
    """The first layer whole; of the second, queries, keys and values, and the patterns.

    Entries count once for the scores, in the first layer once for the values, and once a head for
    the check of the rows' sums.
    """
    tokens, width, mlp, keys, heads = 40, 32, 48, 16, 4
    projections = width * width + 2 * width * keys
    weights = 2 * projections + width * width + 3 * width * mlp
    by_hand = 2 * weights * tokens + 2 * tokens**2 * (3 * width + 2 * heads)
    assert flops(tiny("llama"), [tokens]) == pytest.approx(by_hand, rel=1e-9)


def test_texts_and_tokens_are_those_of_the_run(tiny, gender):
    model, twins = tiny("gpt2"), make_twins(gender)
    cost = estimated_cost(model, gender, twins=twins, config=QUICK, trial_seconds=0.0)
    record = head_bias(model, gender, twins=twins, config=QUICK).record
    assert (cost.groups, cost.texts) == (2, 3 * len(gender) + 2 * record.twins["twins"])
    alone = estimated_cost(model, gender, config=QUICK, trial_seconds=0.0)
    assert alone.tokens == record.texts.tokens
    assert alone.tokens_run == record.texts.tokens_with_prefixes_once
    plain = HeadBiasConfig(n_resamples=99, share_prefix="never")
    assert estimated_cost(model, gender, config=plain, trial_seconds=0.0).tokens_run == alone.tokens


def test_the_saved_size_is_that_of_the_parts(tiny, tmp_path):
    model, triples = tiny("gpt2"), load_triples("starter", category="all", limit=6)
    cost = estimated_cost(model, triples, config=QUICK, trial_seconds=0.0)
    head_bias(model, triples, config=QUICK, store=lambda identity: PartStore(tmp_path, identity))
    saved = sum(path.stat().st_size for path in tmp_path.iterdir())
    # Headers of the archives, some kilobytes each, are not counted.
    assert cost.result_bytes == pytest.approx(saved, rel=0.5)
    assert cost.temporary_bytes == 0
    assert cost.model_bytes == 4 * model.n_parameters


def test_time_is_measured_on_part_of_a_group_and_scaled(tiny, gender):
    model = tiny("gpt2")
    once = estimated_cost(model, gender, config=QUICK, trial_seconds=0.0)
    assert once.trial_contexts == 4
    assert all(seconds > 0 for seconds in once.seconds.values())
    whole = estimated_cost(model, gender, config=QUICK, trial_seconds=60.0)
    assert whole.trial_contexts == 6
    assert np.isfinite(sum(whole.seconds.values()))


@pytest.mark.parametrize(("second", "expected"), [(0.25, 0.75 + 0.25 * 2), (-0.1, 1.0), (3.0, 2.0)])
def test_tests_that_are_made_once_are_counted_once(tiny, gender, second, expected):
    """What a second group adds counts for every group, and is no less than nothing."""
    groups, _ = tokenized_groups(tiny("gpt2"), gender, None)
    seconds = {"forward": 1.0, "births and deaths": 1.0, "comparison": 1.0, "inference": 1.0}
    trial = _Trial(groups[0], 1.0, [_Numbers(6, 1, {**seconds, "of a second group": second})])
    assert trial.scaled(groups, 2.0)["inference"] == pytest.approx(expected)
