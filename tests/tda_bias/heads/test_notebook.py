"""Results at the end of a notebook's cell."""

import re
import sys
from dataclasses import fields
from importlib.metadata import version
from unittest.mock import MagicMock

import pandas as pd
import pytest

import tda_bias
from pvf.preferences import Preferences
from pvf.report import load_report
from tda_bias import HeadBias
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.bbq_change import BBQChange
from tda_bias.comparison.beta_agreement import BetaAgreement
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison
from tda_bias.comparison.samples import SampleComparison
from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.head_crossref import HeadCrossReference
from tda_bias.crossref.item_crossref import ItemCrossReference
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.heads.confirmation import Confirmed
from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.responses.result import Responses
from tda_bias.scores.pair_scores import PairSetScores
from tda_bias.scores.stereoset_scores import SentenceScores, StereoSetScores
from tda_bias.show.progress import progress_bar
from tda_bias.store.result import LazyResult, Result, summary_html
from tda_bias.types import InputError
from unqover.answers import Answers
from unqover.bbq.result import BBQScores
from unqover.report import bias_report

HOSTILE = "<script>alert(1)</script>"


def test_names_are_escaped_and_long_tables_say_how_many_rows_there_are():
    table = pd.DataFrame({HOSTILE: [HOSTILE] * 20})
    text = summary_html(HOSTILE, [HOSTILE], {HOSTILE: table})
    assert "<script" not in text
    assert "first 8 of 20" in text
    assert text.count("<tr") == 1 + 8


def test_a_result_shows_chance_and_survivors_in_a_few_kilobytes(heads_run):
    text = heads_run._repr_html_()
    assert "expected by chance" in text
    assert "survive correction" in text
    assert len(text) < 10_000


def test_words_questions_and_ablations_show_themselves(folders):
    shown = [
        load_report(folders / "pvf0"),
        AblationStudy.load(folders / "heads" / "ablate"),
        bias_report(Answers.load(folders / "gender")),
    ]
    for result in shown:
        text = result._repr_html_()
        assert "<table" in text
        assert len(text) < 10_000


RESULTS = [
    AblationStudy, BBQChange, BBQScores, BetaAgreement, CrossReference, DebiasRun,
    HeadCrossReference, HeadsComparison, ItemCrossReference, ModelComparison, PairSetScores,
    PruneCurve, PublishedAgreement, Responses, SampleComparison, SentenceScores, StereoSetScores,
]  # fmt: skip


def test_every_saved_result_is_among_these():
    of_more_than_tables = {Answers, Confirmed, HeadBias, Preferences}
    ours = {
        kind
        for kind in (*Result.__subclasses__(), *LazyResult.__subclasses__())
        if not kind.__module__.startswith("tests")
        and kind is not LazyResult
        and hasattr(sys.modules[kind.__module__], kind.__name__)  # not of an example
    }
    assert ours == {*RESULTS} | of_more_than_tables


@pytest.mark.parametrize("kind", RESULTS, ids=lambda kind: kind.__name__)
def test_a_saved_result_is_a_line_and_in_a_notebook_a_few_kilobytes(kind):
    names = [field.name for field in fields(kind) if field.name != "record"]
    columns = "category n p outcome ranking condition how heads before beta rms perplexity guard"
    columns = columns.split()
    if kind is StereoSetScores:
        columns += ["scoring", "items", "lms", "ss", "ss_low", "ss_high", "icat", "log_odds"]
        columns += ["beta_low_targets", "beta_high_targets", "p_targets"]
    long = pd.DataFrame({column: [HOSTILE] * 500 for column in [*columns, HOSTILE]})
    long = long.assign(group="all")
    record = MagicMock()
    record.verdict, record.model.name = HOSTILE, "tiny"
    result = kind(**dict.fromkeys(names, long), record=record)
    assert repr(result).startswith(f"{kind.__name__}(tiny")
    assert len(repr(result)) < 400
    text = result._repr_html_()
    assert "first 8 of 500" in text
    assert "<script" not in text
    assert len(text) < 20_000


def test_a_bar_follows_what_is_done(capsys):
    with progress_bar("heads") as progress:
        progress(3, 10)
        progress(10, 10)
    assert "10/10" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    """The time in seconds that a bar sees."""
    now = [0.0]
    for of in ("tqdm.std.time", "tda_bias.show.progress.monotonic"):
        monkeypatch.setattr(of, lambda: now[0])
    return now


def test_what_an_earlier_run_finished_is_no_speed(capsys, clock):
    with progress_bar("heads", log=True) as progress:
        for now, done in ((5.0, 40), (5.5, 90), (7.5, 100)):
            clock[0] = now
            progress(done, 100)
    assert "100/100 [00:02<00:00,  5.00 it/s]" in capsys.readouterr().err


def test_a_log_has_a_line_every_ten_seconds_and_one_at_the_end(capsys, clock):
    with progress_bar("heads", log=True) as progress:
        for second in range(26):
            clock[0] = float(second)
            progress(second, 25)
    shown = capsys.readouterr().err
    assert "\r" not in shown
    assert re.findall(r"(\d+)/25 \[", shown) == ["10", "20", "25"]
    assert "10/25 [00:10<00:15" in shown


def test_a_ranking_that_does_not_exist_or_has_no_place_is_refused(heads_run):
    for k in (0, -3):
        with pytest.raises(InputError, match=f"`k` must be at least 1; got {k}"):
            heads_run.top(k, category="gender")
    of_result = heads_run.top, heads_run.survivors, heads_run.category_map, heads_run.plot_heatmap
    for call in of_result:
        with pytest.raises(InputError, match="`by` must be one of evidence, .* got 'foo'"):
            call(category="gender", by="foo")
        with pytest.raises(InputError, match="`category` must be one of gender, .* got 'age'"):
            call(category="age")


def test_the_package_lists_its_public_names_and_its_version():
    assert dir(tda_bias) == sorted([*tda_bias.__all__, "__version__"])
    assert tda_bias.__version__ == version("tdabias")
