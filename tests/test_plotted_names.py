"""Names are data: no picture that is written takes one for a formula."""

import inspect
from collections import namedtuple
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import SimpleNamespace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

import tda_bias.plots
from pvf import plots as pvf
from pvf.config import RiskConfig
from pvf.reference import Reference
from pvf.report import risk_report
from pvf.words import Template
from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.head_maps import HeadsComparison, HeadsComparisonRecord
from tda_bias.comparison.models import ComparisonRecord, ModelComparison
from tda_bias.crossref.head_crossref import HeadCrossReference
from tda_bias.plots import behaviour, diagrams, figures, illustrations, responses
from tda_bias.plots import head_effects as effect_plots
from tda_bias.plots import heads as head_plots
from tda_bias.plots.illustrations import calibration
from tda_bias.store.record import HookedModelRecord, ModelRecord
from tda_bias.store.result import save_figure
from tda_bias.topology import persistence_diagrams
from tests.support.answers import made_up_answers
from tests.support.plotted import made_up_example, made_up_heads
from tests.support.preferences import made_up as made_up_preferences
from tests.support.preferences import renamed
from unqover import plots as unqover
from unqover.config import InferenceConfig
from unqover.report import bias_report

# An even number of dollar signs, and no formula between them: drawn as one, it is an error.
HOSTILE = r"$\frac{$"
WORDS = tuple(f"{HOSTILE}{number}" for number in range(9))


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def test_the_name_is_one_that_matplotlib_cannot_draw_as_it_is():
    figure = Figure()
    figure.subplots().set_title(HOSTILE)
    with pytest.raises(ValueError, match="Expected"):
        FigureCanvasAgg(figure).draw()


# -- what is drawn, with hostile names -------------------------------------------------------------


def responses_of():
    """Effects of one kind of prompts, and a word that the first group makes likelier."""
    row = {
        "measure": "without echo",
        "kind": HOSTILE,
        "prompts": 8,
        "value": 1,
        "low": 0,
        "high": 2,
    }
    words = pd.DataFrame({"word": [HOSTILE], "log_ratio": 1.0, "q": 0.01})
    return SimpleNamespace(
        effects=pd.DataFrame([row]),
        other_words=words,
        record=SimpleNamespace(groups=(HOSTILE, "others")),
        effect=lambda measure="without echo", kind="all": (
            row if measure == row["measure"] else None
        ),
    )


@cache
def report_of(model=HOSTILE, seed=0, **options):
    made = made_up_preferences(seed, n_x=9)
    templates = tuple(Template(f"The [X] {HOSTILE} {c} that [Y]", c + 1.0) for c in range(3))
    about = made.record.model.model_copy(update={"name": model})
    classes = (f"{HOSTILE}a", f"{HOSTILE}b")
    made = renamed(made.with_record(model=about), x=WORDS, templates=templates, classes=classes)
    return risk_report(made, config=RiskConfig(), **options)


@cache
def bias_of():
    made = made_up_answers("gender_race", subjects=3, attributes=4)
    asked = made.asked
    named = {
        field: tuple(f"{HOSTILE}{name}" for name in getattr(asked, field))
        for field in ("subjects", "factors", "attributes", "kinds")
    }
    named["levels"] = tuple(tuple(f"{HOSTILE}{level}" for level in own) for own in asked.levels)
    made = made.with_record(design=asked.model_copy(update=named))
    return bias_report(made, config=InferenceConfig(n_flips=19, n_bootstrap=100))


@cache
def heads():
    return made_up_heads(HOSTILE, (f"{HOSTILE}a", f"{HOSTILE}b"))


def ablation():
    table = pd.DataFrame({f"z_{HOSTILE}": [1.0, 2], "effect": [0.1, 0.2], "exact": [0.1, 0.2]})
    said = pd.DataFrame([{"ranking": f"z_{HOSTILE}", "rho_effect": 0.5, "p_effect": 0.3}])
    none = pd.DataFrame()
    return AblationStudy(none, none, table, said, SimpleNamespace(rank_by=HOSTILE))


@cache
def head_effects():
    rng = np.random.default_rng(0)
    numbers = [f"{kind}_{risk}" for kind in ("effect", "exact") for risk in ("R", "R_p", "R_v")]
    table = pd.DataFrame({"layer": [0, 0, 1, 1], "head": [0, 1, 0, 1], "chosen": "top"})
    table["unstable"] = False
    table = table.assign(**{name: rng.normal(size=4) for name in (*numbers, f"z_{HOSTILE}")})
    row = {"ranking": f"z_{HOSTILE}", "aspect": "size", "spearman": 0.1, "p_within_layers": 0.5}
    said = pd.DataFrame([{**row, "risk": risk} for risk in ("R", "R_p", "R_v")])
    return HeadCrossReference(
        table, said, pd.DataFrame(), SimpleNamespace(rank_by=HOSTILE, chance=None)
    )


def changes():
    row = {
        "outcome": HOSTILE, "unit": f"{HOSTILE} nats", "kind": "bias", "primary": True, "guard": "",
        **dict.fromkeys(("before", "after", "change", "low", "high", "margin"), 0.5),
    }  # fmt: skip
    record = ComparisonRecord.model_construct(
        model=ModelRecord(name=HOSTILE), after=ModelRecord(name=HOSTILE), confidence=0.95
    )
    return ModelComparison(pd.DataFrame([row]), pd.DataFrame(), record)


def moved():
    own = {"layer": [0, 1], "head": 0, "before": [0.1, 0.2], "after": [0.2, 0.1], "z": 9.0}
    table = pd.DataFrame({**own, "p_holm": 0.001})
    layers = pd.DataFrame({"model": ["before", "after"], "depth": 0.5, "value": 1.0})
    said = pd.DataFrame([{"over": "heads", "rho": 0.5, "chance_low": 0.1, "chance_high": 0.2}])
    name = HookedModelRecord.model_construct(name=HOSTILE)
    record = HeadsComparisonRecord.model_construct(
        model=name, after=name, category=HOSTILE, by=HOSTILE, matched=True
    )
    return HeadsComparison(said, layers, table, record)


def targets():
    numbers = {"r": [0.1, 0.3, 0.2], "T": [1.0, 2.0, 3.0]}
    names = {"category": [f"{HOSTILE}a", f"{HOSTILE}b", f"{HOSTILE}b"], "target": list(WORDS[:3])}
    return pd.DataFrame({**names, **numbers}).rename(columns={"r": HOSTILE, "T": f"{HOSTILE}T"})


def curve():
    rows = [(HOSTILE, 0, k, 3.0 + k, 0.1) for k in (0, 1)]
    return pd.DataFrame(rows, columns=["ranking", "draw", "k", "log_ppl", "beta_test"])


def flag():
    return persistence_diagrams(np.tril(np.random.default_rng(0).random((5, 5))), "flag")[0]


def frontier():
    rows = [(name, 0, check, 0.1 * check, 0.2) for name in WORDS[:2] for check in (0, 1)]
    return pd.DataFrame(rows, columns=["condition", "draw", "check", "perplexity", "beta"])


def conditions():
    rows = [(name, 0.3, 0.2, 0.1, 0.3, 1.0) for name in WORDS[:2]]
    columns = ["condition", "before", "beta", "low", "high", "perplexity"]
    return pd.DataFrame(rows, columns=columns)


def regression():
    report = report_of()
    table = pd.DataFrame({HOSTILE: np.arange(9.0)}, index=list(report.by_x["x"]))
    return report.by_x, table, HOSTILE


ITEMS = pd.DataFrame(
    {name: [1.0, -2.0, 3.0] for name in ("log_prob_s", "log_prob_a_twin")}
    | {name: [0.5, -2.5, 1.0] for name in ("log_prob_a", "log_prob_s_twin")}
)
EXAMPLE = made_up_example(WORDS)

Drawn = namedtuple("Drawn", "plot arguments options", defaults=((), {}))
ALL = {
    drawn.plot.__name__: drawn
    for drawn in (
        Drawn(behaviour.plot_items_against_twins, lambda: (ITEMS,)),
        Drawn(behaviour.plot_twin_differences, lambda: (ITEMS.assign(beta_sum=[0.5, -1.0, 2.0]),)),
        Drawn(behaviour.plot_targets, lambda: (targets(), HOSTILE, f"{HOSTILE}T")),
        Drawn(behaviour.plot_ablation, lambda: (ablation(),)),
        Drawn(behaviour.plot_prune_curve, lambda: (curve(),)),
        Drawn(behaviour.plot_conditions, lambda: (conditions(), frontier())),
        Drawn(diagrams.plot_barcode, lambda: (flag(),)),
        Drawn(diagrams.plot_diagram, lambda: (flag(),)),
        Drawn(illustrations.plot_attention, lambda: (EXAMPLE.tokens, EXAMPLE.patterns[0, 0])),
        Drawn(illustrations.plot_step_function, lambda: (EXAMPLE,)),
        Drawn(illustrations.plot_swap, tuple, {"axes": Figure().subplots(1, 2)}),
        Drawn(figures.plot_comparison, lambda: (changes(),)),
        Drawn(figures.plot_head_comparison, lambda: (moved(),)),
        Drawn(
            effect_plots.plot_effect_maps,
            lambda: (head_effects().heads,),
            {"axes": Figure().subplots(1, 3)},
        ),
        Drawn(effect_plots.plot_ranking_map, lambda: (head_effects(),)),
        Drawn(effect_plots.plot_effects_against_z, lambda: (head_effects(), "R")),
        Drawn(effect_plots.plot_exact_against_estimates, lambda: (head_effects().heads,)),
        Drawn(head_plots.plot_categories, lambda: (heads(),)),
        Drawn(head_plots.plot_length_control, lambda: (heads(),)),
        Drawn(head_plots.plot_reliability, lambda: (heads(),)),
        Drawn(head_plots.plot_calibration, lambda: (calibration(n_groups=3, n_resamples=19),)),
        Drawn(head_plots.plot_agreement, lambda: ({name: None for name in WORDS[:2]},)),
        Drawn(
            head_plots.plot_heatmap,
            lambda: (heads(),),
            {"category": f"{HOSTILE}a", "by": "relative"},
        ),
        Drawn(pvf.plot_signed_means, lambda: ({HOSTILE: report_of()},)),
        Drawn(pvf.plot_distribution, lambda: (report_of(),)),
        Drawn(pvf.plot_preferences, lambda: (report_of().preferences, WORDS[:2])),
        Drawn(
            pvf.plot_against_size, lambda: ({w: report_of(w, i) for i, w in enumerate(WORDS[:2])},)
        ),
        Drawn(pvf.plot_change, lambda: (report_of(), report_of(seed=1))),
        Drawn(
            pvf.plot_reference,
            lambda: (report_of(reference=Reference.of(np.full(2, 0.5), HOSTILE)),),
        ),
        Drawn(pvf.plot_regression, regression),
        Drawn(responses.plot_response_effects, lambda: (responses_of(),)),
        Drawn(responses.plot_words, lambda: (responses_of(),)),
        Drawn(unqover.plot_heat_map, lambda: (bias_of(),)),
        Drawn(unqover.plot_attributes, lambda: (bias_of(),)),
        Drawn(unqover.plot_interaction, lambda: (bias_of(),)),
    )
}
# Of these, no text is a name.
NAMELESS = {
    "plot_barcode",
    "plot_diagram",
    "plot_effect_maps",
    "plot_exact_against_estimates",
    "plot_items_against_twins",
    "plot_twin_differences",
    "plot_step_function",
    "plot_swap",
    "plot_calibration",
}


def test_every_public_plot_stands_here():
    folder = [
        import_module(f"tda_bias.plots.{m.name}") for m in iter_modules(tda_bias.plots.__path__)
    ]
    there = {
        name
        for module in (*folder, pvf, unqover)
        for name, _ in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("plot_")
    }
    assert there == set(ALL)


@pytest.fixture
def _agreement(monkeypatch):
    table = pd.DataFrame(np.eye(2), index=WORDS[:2], columns=WORDS[:2])
    monkeypatch.setattr(head_plots, "agreement", lambda results: table)


@pytest.mark.usefixtures("_agreement")
@pytest.mark.parametrize("name", ALL)
def test_a_name_is_written_as_it_is(name, tmp_path):
    drawn = ALL[name]
    options = dict(drawn.options)
    ax = inspect.signature(drawn.plot).parameters.get("ax")
    if ax is not None and ax.default is ax.empty:
        options["ax"] = plt.subplots()[1]
    shown = drawn.plot(*drawn.arguments(), **options)
    figure = shown if isinstance(shown, Figure) else np.ravel(shown)[0].figure
    save_figure(tmp_path / "a.png", figure)
    texts = [text for text in figure.findobj(Text) if text.get_visible()]
    assert any(HOSTILE in text.get_text() for text in texts) == (name not in NAMELESS)
    assert not any("mathdefault" in text.get_text() for text in texts)
    assert mpl.rcParams["text.parse_math"]  # a caller's own formulas stay formulas
