"""Every figure is drawn from saved runs, and says what it lacks."""

import shutil

import numpy as np
import pytest
from PIL import Image

from tda_bias.runs.figures import COLUMN, PAGE, drawings, write_print
from tda_bias.runs.run import open_run, with_parts
from tda_bias.types import InputError
from tdabias_cli.figures import catalogue

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def runs(folders):
    names = ["heads", "pvf0", "pvf1", "gender", "gender_race"]
    return with_parts([folders / name for name in names])


def test_runs_know_their_command_and_their_parts(runs, folders):
    assert [run.command for run in runs] == [
        "heads", "pvf", "pvf", "unqover", "unqover", "ablate",
    ]  # fmt: skip
    assert len({run.id for run in runs}) == len(runs)
    assert open_run(folders / "heads").id == runs[0].id
    with pytest.raises(InputError, match="holds no finished run"):
        open_run(folders)


def test_all_figures_are_drawn(runs):
    lacking = []
    found = {one.name: one for one in drawings(runs, catalogue(), left_out=lacking.append)}
    assert not lacking
    kinds = {name.split("-")[0] for name in found}
    assert kinds == {entry.name for entry in catalogue()} - {
        "agreement",
        "crossref",
        "twins_items",
        "compare",
        "compare_heads",
        "debias_frontier",
    }
    for one in found.values():
        assert one.figure.axes
        assert one.figure.get_figwidth() in (COLUMN, PAGE) or one.name.startswith("unqover")
        assert one.title


def test_heat_maps_are_centred_and_captioned(runs):
    (one,) = drawings(runs, catalogue(), only=["fig4_gender"])
    image = one.figure.axes[0].images[0]
    assert image.norm.vmin == -image.norm.vmax
    assert "groups" in one.figure.get_supxlabel()
    assert "expected by chance" in one.figure.get_supxlabel().replace("\n", " ")


def test_files_carry_their_run(runs, tmp_path):
    (one,) = drawings(runs, catalogue(), only=["fig8_means"])
    files = write_print(
        tmp_path, one.name, one.figure, formats=("svg", "pdf", "png"), title=one.title,
        run_id=one.run_id,
    )  # fmt: skip
    assert [f.suffix for f in files] == [".svg", ".pdf", ".png"]
    assert one.run_id == runs[0].id
    assert one.run_id in files[0].read_text()
    assert one.run_id.encode() in files[1].read_bytes()
    with Image.open(files[2]) as image:
        assert one.run_id in image.info["Description"]
        assert image.width == pytest.approx(COLUMN * 300, abs=2)
    again = write_print(
        tmp_path / "again", one.name, one.figure, formats=("svg",), title=one.title,
        run_id=one.run_id,
    )  # fmt: skip
    assert again[0].read_text() == files[0].read_text()


@pytest.mark.parametrize(
    ("only", "folders_given", "message"),
    [
        ("fig12", ["heads"], "`only` must be among fig1_step_function"),
        ("fig4_gender", ["pvf0"], "needs a run of `tdabias heads --category gender`; got 0"),
        ("pvf6_change", ["pvf0"], "needs 2 runs or more of `tdabias pvf`; got 1"),
        ("agreement", ["heads"], "needs 2 runs or more of `tdabias heads`; got 1"),
        ("crossref", ["heads"], "needs a run of `tdabias crossref`; got 0"),
        ("ablation", ["pvf0"], "needs a run of `tdabias ablate`; got 0"),
        ("unqover_interaction", ["gender"], "needs a run of `tdabias unqover`; got 0"),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(
    folders, only, folders_given, message
):
    own = with_parts([folders / name for name in folders_given])
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        list(drawings(own, catalogue(), only=[only]))


def test_a_run_without_its_example_is_told_how_to_make_it(folders, tmp_path):
    shutil.copytree(folders / "heads", tmp_path / "heads")
    (tmp_path / "heads" / "example.npz").unlink()
    own = with_parts([tmp_path / "heads"])
    with pytest.raises(
        InputError, match="example.npz cannot be read .*; run the same `tdabias heads` command"
    ):
        list(drawings(own, catalogue(), only=["fig2_pattern"]))
    lacking = []
    found = [one.name for one in drawings(own, catalogue(), left_out=lacking.append)]
    assert "fig8_means" in found
    assert [line.split(":")[0] for line in lacking] == [
        "fig1_step_function", "fig2_pattern", "filtration",
    ]  # fmt: skip


def test_the_same_weights_are_no_before_and_after(folders, tmp_path):
    shutil.copytree(folders / "pvf0", tmp_path / "again")
    own = with_parts([folders / "pvf0", tmp_path / "again"])
    with pytest.raises(InputError, match="have the same weights: one model, twice"):
        list(drawings(own, catalogue(), only=["pvf6_change"]))


def test_agreement_is_spearman_over_groups(heads_run):
    from scipy.stats import spearmanr

    from tda_bias.heads.result import agreement
    from tda_bias.plots.overview import plot_agreement

    other = heads_run.combined.copy()
    rng = np.random.default_rng(0)
    other["combined_relative"] *= rng.uniform(0.5, 1.5, len(other))
    from dataclasses import replace

    two = replace(heads_run, combined=other)
    found = agreement({"a": heads_run, "b": two})
    size = [
        t.assign(v=t["combined_relative"].abs()).groupby(["category", "group"])["v"].mean()
        for t in (heads_run.combined, other)
    ]
    assert found.loc["a", "b"] == pytest.approx(spearmanr(*size).statistic)
    assert found.loc["a", "a"] == 1
    with pytest.raises(InputError, match="at least 2 models"):
        plot_agreement({"a": heads_run})
    few = replace(heads_run, combined=heads_run.combined[heads_run.combined["group"] == "girl"])
    with pytest.raises(InputError, match="groups in common; 4 are needed"):
        plot_agreement({"a": heads_run, "b": few})
