"""What the explaining pictures show is what the statistic uses."""

import numpy as np
from matplotlib.figure import Figure

from tda_bias.heads.items import ExamplePattern
from tda_bias.plots.illustrations import plot_step_function
from tda_bias.store.run import open_run
from tda_bias.topology.persistence import births_deaths
from tda_bias.topology.steps import step_function
from tests.support.models import tiny_hf_model


def test_the_example_is_the_models_pattern(tokenizer, example, heads_run, tmp_path):
    import torch

    ids = tokenizer(example.text)["input_ids"]
    plain = tiny_hf_model("gpt2", len(tokenizer))
    with torch.no_grad():
        expected = plain(torch.tensor([ids]), output_attentions=True).attentions
    np.testing.assert_allclose(example.patterns, torch.stack(expected)[:, 0].numpy(), atol=1e-5)
    assert len(example.tokens) == len(ids)
    heads_run.with_patterns(example).save(tmp_path)
    again = ExamplePattern.read(open_run(tmp_path))
    np.testing.assert_array_equal(again.patterns, example.patterns)
    assert (again.text, again.tokens, again.attention) == (
        example.text, example.tokens, example.attention,
    )  # fmt: skip


def test_the_orange_line_is_the_step_function(example):
    ax = plot_step_function(example, ax=Figure().subplots())
    births = births_deaths(example.patterns[0, 0], attention="causal").births
    np.testing.assert_allclose(ax.patches[1].get_data().values, step_function(births, 4))
