"""Every figure is drawn from saved runs, and says what it lacks."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pvf.config import RiskConfig
from pvf.reference import Reference
from pvf.report import risk_report
from tda_bias.heads.result import HeadBias
from tda_bias.paper.page import write_tables
from tda_bias.plots.figures import heat_map
from tda_bias.show.figures import COLUMN, OF_PAPERS, PAGE, Entry, drawings, write_print
from tda_bias.store.run import with_parts
from tda_bias.types import InputError
from tdabias_cli.figures import catalogue
from tdabias_cli.main import run
from tests.support.canvas import unseen
from tests.support.preferences import as_published, made_up
from tests.support.runs import write_run

pytestmark = pytest.mark.thorough

DOCS = Path(__file__).parents[2] / "docs"
GOLDEN = Path(__file__).parents[1] / "golden/pages/runs/smollm2-135m"


def test_a_run_has_its_figures_and_tables_with_what_was_done_otherwise(
    reproduced, tmp_path, capsys
):
    out = tmp_path / "figures"
    formats = ["--as", "svg", "--as", "png", "--format", "csv"]
    assert run(["figures", str(reproduced / "heads"), "--out", str(out), *formats]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "figure,title,run,files"
    names = {path.name for path in out.iterdir()}
    assert {"fig4_gender.svg", "calibration.png", "table1_gender.md"} <= names
    kinds = [name.rpartition(".")[2] for name in names]
    assert [kinds.count(kind) for kind in ("png", "svg", "pdf", "md")] == [12, 12, 0, 12]
    assert len(rows) == 12
    ranking = (out / "heads_gender.tex").read_text()
    assert ranking.startswith(r"% Needs \usepackage{booktabs}")
    assert re.search(r"\\toprule\nhead & .*\\\\\n\\midrule\nL\d+H\d+ & ", ranking)
    result = HeadBias.load(reproduced / "heads")
    [first] = result.top(1, category="gender").to_dict("records")
    row = re.search(r"^L(\d+)H(\d+) & (\S+) ", ranking, re.MULTILINE)
    assert row.groups() == (str(first["layer"]), str(first["head"]), f"{first['z']:.2f}")
    assert str(reproduced) not in ranking
    beside = (out / "table1_gender_beside_paper.md").read_text()
    assert "Unlike the paper: another model" in beside
    assert "texts from starter instead of StereoSet's on the hub; at most 3 triples" in beside


def test_without_a_run_what_is_simulated_is_drawn(tmp_path, capsys):
    more = ["--only", "fig3_swap", "--as", "svg", "--out", str(tmp_path)]
    assert run(["figures", *more]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["fig3_swap.svg"]
    assert "1 figure (svg), 0 tables" in capsys.readouterr().out


def test_the_gallery_has_every_figure_once_by_its_name():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    names = [entry.name for entry in catalogue()]
    parts = [part.split("\n\n")[1].strip() for part in page.split("\n## ")[1:]]
    drawn = [re.fullmatch(r"!\[(\w+)\]\(gallery/\1\.png\)", part)[1] for part in parts]
    assert sorted(drawn) == sorted(names)
    assert {path.stem for path in (DOCS / "gallery").iterdir()} == set(drawn)


def test_help_names_every_figure_of_the_papers_and_the_catalogue_has_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "2000")
    assert run(["figures", "--help"]) == 0
    [only] = [line for line in capsys.readouterr().out.splitlines() if "--only" in line]
    entries = {entry.name: entry.title for entry in catalogue()}
    papers = {name for name, title in entries.items() if title.startswith(tuple(OF_PAPERS))}
    assert papers == {name for own in OF_PAPERS.values() for name in own} <= set(entries)
    assert len(papers) > 10
    for name in papers:
        assert re.search(rf"\b{name}\b", only), name


def test_a_risk_of_the_papers_words_alone_stands_beside_theirs(tmp_path, capsys):
    for name, preferences in (("own", made_up(n_x=8)), ("theirs", as_published())):
        report = risk_report(preferences, config=RiskConfig())
        report.preferences.save(tmp_path / name)
        report.save(tmp_path / name)
    own, out = tmp_path / "own", tmp_path / "o"
    for folders, there in (((own, tmp_path / "theirs"), True), ((own,), False)):
        command = ["figures", *map(str, folders), "--out", str(out), "--as", "svg"]
        assert run([*command, "--format", "json"]) == 0
        captured = capsys.readouterr()
        printed = json.loads(captured.out)
        assert printed["tables"] == 10
        assert all((out / name).is_file() for one in printed["figures"] for name in one["files"])
        [said] = [line for line in printed["not_drawn"] if "risk_gender" in line]
        assert said.startswith(f"{own} in risk_gender: words x are others than the papers' 120")
        assert f"Not drawn: {own} in risk_gender" in captured.err
        shown = (out / "risk_gender.md").read_text()
        assert "GPT-2" in shown
        assert ("model-0" in shown) == there
        assert "model-0" not in (out / "risk_race.md").read_text()


def test_figures_are_not_drawn_over_a_runs_files(reproduced, capsys):
    before = {
        path: path.read_bytes() for path in (reproduced / "heads").iterdir() if path.is_file()
    }
    assert run(["figures", str(reproduced / "heads"), "--out", str(reproduced / "heads")]) == 2
    assert "holds a finished run of `tdabias heads`; choose another" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in before}


def test_runs_without_figures_are_refused_by_name(tmp_path, capsys):
    folder = write_run(tmp_path / "s", command="pairs")
    assert run(["figures", str(folder), "--out", str(tmp_path / "o")]) == 2
    said = "`tdabias pairs`, which has no figures; give runs of heads, stereoset, "
    assert said in capsys.readouterr().err


def test_runs_of_several_models_are_drawn_beside_what_cannot_be(tmp_path, monkeypatch, capsys):
    """As with `figures runs/*`: what holds no figures stops nothing, and is said."""
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        report = risk_report(made_up(number), config=RiskConfig())
        report.preferences.save(tmp_path / f"runs/several/model-{number}")
        report.save(tmp_path / f"runs/several/model-{number}")
    write_run(tmp_path / "runs" / "pairs", command="pairs")
    for _ in range(2):  # the second finds the figures of the first
        folders = sorted(str(path) for path in Path("runs").iterdir())
        assert run(["figures", *folders, "--as", "svg"]) == 0
        said = capsys.readouterr().err.replace("\n", " ")
        assert "Not drawn: runs/pairs is a run of `tdabias pairs`, which has no figures" in said
        drawn = {path.name for path in Path("runs/figures").iterdir()}
        assert {"pvf5_signed_means.svg", "pvf6_change.svg"} <= drawn
    assert not Path("figures").exists()


def test_labels_of_maps_of_few_layers_are_whole(heads_run):
    """A model of two layers: its maps are low, the labels of their colour bars are long."""
    figure = heat_map([Mock(load=lambda _: heads_run)], category="gender")
    figure.canvas.draw()
    whole = figure.bbox
    labels = [
        label
        for ax in figure.axes
        for label in (ax.xaxis.label, ax.yaxis.label)
        if label.get_text()
    ]
    assert len(labels) == 3  # of heads, of layers, and of colours
    for label in labels:
        box = label.get_window_extent()
        assert whole.y0 <= box.y0
        assert box.y1 <= whole.y1
        assert whole.x0 <= box.x0
        assert box.x1 <= whole.x1


# -- one by one ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(folders):
    names = ["heads", "pvf0", "pvf1", "gender", "gender_race"]
    return with_parts([folders / name for name in names])


@pytest.fixture(scope="module")
def drawn(runs):
    lacking = []
    found = {one.name: one for one in drawings(runs, catalogue(), left_out=lacking.append)}
    assert not lacking
    return found


def test_all_figures_are_drawn(drawn):
    of_other_runs = {
        "agreement", "crossref", "crossref_heads", "twins_items", "compare", "compare_heads",
        "debias_frontier", "prune_curve", "bbq_scores", "pvf_reference", "responses",
    }  # fmt: skip
    kinds = {name.split("-")[0] for name in drawn}
    assert kinds == {entry.name for entry in catalogue()} - of_other_runs
    for one in drawn.values():
        assert one.figure.axes
        assert one.figure.get_figwidth() in (COLUMN, PAGE) or one.name.startswith("unqover")
        assert one.title


@pytest.fixture(scope="module")
def others(folders, report_runs, heads_run, tmp_path_factory):
    """Figures of further runs: those of pages of the docs, twins, a reference, two models."""
    base = tmp_path_factory.mktemp("others")
    report = risk_report(made_up(0), reference=Reference.of(np.linspace(0.2, 0.8, 2), "some"))
    report.preferences.save(base / "pvf")
    report.save(base / "pvf")
    heads_run.with_record(model=heads_run.record.model.model_copy(update={"name": "other"})).save(
        base / "heads"
    )
    pages = [GOLDEN / name for name in ("bbq-religion", "gender/ablate-curve", "debias-gender")]
    opened = with_parts([*pages, report_runs[1], base / "pvf", base / "heads", folders / "heads"])
    names = [
        "bbq_scores", "prune_curve", "debias_frontier", "twins_items", "pvf_reference", "agreement",
    ]  # fmt: skip
    return {one.name: one for one in drawings(opened, catalogue(), only=names)}


def test_every_picture_is_whole_and_its_labels_are_apart(drawn, others):
    assert len(others) == 6
    found = {name: unseen(one.figure) for name, one in {**drawn, **others}.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_two_measures_of_one_model_are_two_figures(folders, tmp_path):
    pronouns = risk_report(made_up(0, words=("he", "she"), class_of=(0, 1)))
    pronouns.save(tmp_path / "pronouns")
    own = with_parts([folders / "pvf0", tmp_path / "pronouns"])
    found = [one.run_id for one in drawings(own, catalogue(), only=["pvf5_signed_means"])]
    assert found == [run.id for run in own]


def test_heat_maps_are_grey_up_to_chance_and_captioned(drawn, heads_run):
    figure = drawn["fig4_gender"].figure
    image = figure.axes[0].images[0]
    chance = heads_run.controls("gender")["critical"]
    assert image.norm.vmax >= 1.3 * chance > 0
    for value, grey in ((0.99 * chance, True), (1.2 * chance, False)):
        red, _, blue, _ = image.cmap(image.norm(value))
        assert (red == pytest.approx(blue, abs=0.01)) == grey
    caption = figure.get_supxlabel().replace("\n", " ")
    assert "groups" in caption
    assert "expected by chance" in caption


def test_files_carry_their_run(runs, drawn, tmp_path):
    one = drawn["fig8_means"]
    files = write_print(tmp_path, one, ("svg", "pdf", "png"))
    assert [f.suffix for f in files] == [".svg", ".pdf", ".png"]
    assert one.run_id == runs[0].id
    assert one.run_id in files[0].read_text()
    assert one.run_id.encode() in files[1].read_bytes()
    with Image.open(files[2]) as image:
        assert one.run_id in image.info["Description"]
        assert image.width == pytest.approx(COLUMN * 300, abs=2)
    again = write_print(tmp_path / "again", one, ("svg",))
    assert again[0].read_text() == files[0].read_text()


@pytest.mark.parametrize(
    ("only", "given", "message"),
    [
        ("fig12", "heads", "`only` must be among fig1_step_function"),
        ("fig4_gender", "pvf0", "needs a run of `tdabias heads --category gender`; got 0"),
        ("pvf6_change", "pvf0", "needs 2 runs or more of `tdabias pvf`; got 1"),
        ("agreement", "heads", "needs 2 runs or more of `tdabias heads`; got 1"),
        (
            "pvf_reference",
            "pvf0",
            "needs a run of `tdabias pvf --reference bls`; got 0",
        ),
        ("compare_heads", "heads", "needs a run of `tdabias compare RUN RUN`; got 0"),
        ("crossref", "heads", "needs a run of `tdabias crossref`; got 0"),
        ("prune_curve", "pvf0", "needs a run of `tdabias ablate --curve`; got 0"),
        ("unqover_interaction", "gender", "needs a run of `tdabias unqover`; got 0"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(folders, only, given, message):
    with pytest.raises(InputError, match=re.escape(message)):
        list(drawings(with_parts([folders / given]), catalogue(), only=[only]))


def test_runs_in_folders_of_the_same_names_have_files_of_their_own(tmp_path):
    folders = [tmp_path / "x/A/gender", tmp_path / "y/A/gender", tmp_path / "y/B/gender"]
    for number, folder in enumerate(folders):
        write_run(folder, number + 1)
    one, two, three = with_parts(folders)
    top = replace(three, folder=Path("/gender"))
    entry = Entry("fig", "A figure", "stereoset", lambda runs: Figure())
    assert [found.name for found in drawings([one, two, three, top], [entry])] == [
        f"fig-A-gender-{one.id}", f"fig-A-gender-{two.id}", "fig-B-gender", "fig-gender",
    ]  # fmt: skip
    assert one.id != two.id
    assert [found.name for found in drawings([top], [entry])] == ["fig"]


def test_every_run_of_heads_has_tables_of_its_own(folders, tmp_path):
    shutil.copytree(folders / "heads", tmp_path / "other" / "heads")
    two = with_parts([folders / "heads", tmp_path / "other" / "heads"])
    heads = [run for run in two if run.command == "heads"]
    written = write_tables(heads, tmp_path / "out")
    assert written == len(list((tmp_path / "out").glob("*.md"))) == 16
    assert (tmp_path / "out" / "table1_gender_beside_paper-other-heads.md").is_file()


def test_a_run_without_its_example_is_told_how_to_make_it(folders, tmp_path):
    shutil.copytree(folders / "heads", tmp_path / "heads")
    (tmp_path / "heads" / "example.npz").unlink()
    own = with_parts([tmp_path / "heads"])
    with pytest.raises(
        InputError, match="example.npz cannot be read .*; run the same `tdabias heads` command"
    ):
        list(drawings(own, catalogue(), only=["fig2_pattern"]))
    entries = [one for one in catalogue() if one.name in ("fig2_pattern", "fig8_means")]
    lacking = []
    assert [one.name for one in drawings(own, entries, left_out=lacking.append)] == ["fig8_means"]
    assert [line.split(":")[0] for line in lacking] == ["fig2_pattern"]


def test_agreement_is_spearman_over_groups(heads_run):
    from scipy.stats import spearmanr

    from tda_bias.plots.heads import agreement

    other = heads_run.combined.copy()
    rng = np.random.default_rng(0)
    other["combined_relative"] *= rng.uniform(0.5, 1.5, len(other))
    two = replace(heads_run, combined=other)
    found = agreement({"a": heads_run, "b": two})
    size = [
        t.assign(v=t["combined_relative"].abs()).groupby(["category", "group"])["v"].mean()
        for t in (heads_run.combined, other)
    ]
    assert found.loc["a", "b"] == pytest.approx(spearmanr(*size).statistic)
    assert found.loc["a", "a"] == 1
    few = replace(heads_run, combined=heads_run.combined[heads_run.combined["group"] == "girl"])
    with pytest.raises(InputError, match="groups in common; 4 are needed"):
        agreement({"a": heads_run, "b": few})
