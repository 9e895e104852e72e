"""Maps of heads' effects: square cells, one scale, and the ranking grey up to chance."""

import numpy as np
import pandas as pd
import pytest

from tda_bias.crossref.head_crossref import (
    RISKS,
    HeadCrossReference,
    HeadCrossrefRecord,
    head_correlations,
)
from tda_bias.plots.head_effects import head_effects_figure
from tda_bias.store.record import HookedModelRecord
from tests.support.canvas import unseen


def made_up(layers, heads, chance=3.4):
    """Noise in which one head stands out, of a model that lies in a folder."""
    rng = np.random.default_rng(0)
    place = np.indices((layers, heads)).reshape(2, -1)
    table = pd.DataFrame({"layer": place[0], "head": place[1], "unstable": False, "chosen": "no"})
    for name in ("T", "z_evidence"):
        table[name] = rng.uniform(-2, 2, len(table))
    table.loc[1, "z_evidence"] = 5.0
    table.loc[:1, "chosen"] = "top"
    for risk, size in zip(RISKS, (0.01, 0.004, 0.001), strict=True):
        table[f"effect_{risk}"] = size * rng.uniform(-1, 1, len(table))
        table[f"exact_{risk}"] = table[f"effect_{risk}"].where(table["chosen"] == "top")
    record = HeadCrossrefRecord.model_construct(
        model=HookedModelRecord.model_construct(name="/home/me/models/a-model"),
        category="gender", rank_by="evidence", ablation="zero", words=12, templates=10,
        chance=chance,
    )  # fmt: skip
    correlations = head_correlations(table, top=1, n_resamples=19)
    return HeadCrossReference(table, correlations, pd.DataFrame(), record)


@pytest.mark.parametrize(("layers", "heads"), [(1, 4), (2, 64), (12, 12), (40, 2)])
def test_cells_are_square_and_all_texts_are_seen(layers, heads):
    figure = head_effects_figure(made_up(layers, heads))
    assert unseen(figure) == []
    maps = [ax for ax in figure.axes if ax.images]
    assert len(maps) == 1 + len(RISKS)
    for ax in maps:
        box = ax.get_window_extent()
        assert box.width / heads == pytest.approx(box.height / layers, rel=0.02)
        assert box.width / heads > 3  # pixels


def test_effects_on_all_risks_have_one_scale_about_zero():
    result = made_up(12, 12)
    _, *effects = [ax for ax in head_effects_figure(result).axes if ax.images]
    largest = result.heads[[f"effect_{risk}" for risk in RISKS]].abs().to_numpy().max()
    for ax in effects:
        assert ax.images[0].get_clim() == pytest.approx((-largest, largest))


@pytest.mark.parametrize("chance", [3.4, None])
def test_the_map_that_ranks_is_coloured_above_chance_alone(chance):
    ranking = head_effects_figure(made_up(12, 12, chance)).axes[0]
    every, found = ranking.images
    coloured = np.isfinite(np.ma.filled(found.get_array().astype(float), np.nan))
    assert np.argwhere(coloured).tolist() == ([] if chance is None else [[0, 1]])
    red, _, blue, _ = every.cmap(every.norm(2.0))
    assert red == pytest.approx(blue, abs=0.01)
    assert ("chance" in every.colorbar.ax.get_xlabel()) == (chance is not None)


def test_a_model_is_called_by_its_name_and_not_by_its_folder():
    caption = head_effects_figure(made_up(4, 4)).get_label()
    assert caption.startswith("a-model, gender: 16 heads")
