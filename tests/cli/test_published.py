"""``tdabias crossref --published``: a run's map beside rankings that others published."""

import json

import pytest

from tda_bias import HeadBiasConfig, head_bias
from tda_bias.heads.result import HeadBias
from tda_bias.paper.published_run import PublishedAgreement
from tda_bias.paper.rankings import against_published
from tdabias_cli.main import run


@pytest.fixture(scope="module")
def heads(tiny, gender, tmp_path_factory):
    """A model with as many heads as GPT-2."""
    model = tiny("gpt2", n_layer=12, n_head=12, n_embd=48)
    folder = tmp_path_factory.mktemp("runs") / "heads"
    config = HeadBiasConfig(n_resamples=99)
    head_bias(model, gender[:3] + gender[-3:], twins=None, config=config).save(folder)
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--published", "gpt3"], "`published` must be one of bert-base-uncased"),
        (["--published", "distilgpt2"], "has scores of 72 heads, the run ranks 144"),
        (["--published", "gpt2", "--items"], "`items` is not read with --published"),
        (["--published", "gpt2", "--match", "weak"], "`match` is not read with --published"),
        ([], "give the folder that `tdabias pvf` or `tdabias unqover` wrote"),
        (["--items"], "(with --items: that of `tdabias stereoset`)"),
    ],
)
def test_unusable_input_ends_with_one_line(heads, tmp_path, capsys, options, message):
    out = tmp_path / "out"
    assert run(["crossref", str(heads), *options, "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not out.exists()


def test_a_run_of_another_behaviour_is_not_mixed_in(heads, tmp_path, capsys):
    assert run(["crossref", str(heads), str(tmp_path), "--published", "gpt2"]) == 2
    assert "`behaviour` is not read with --published" in capsys.readouterr().err


def test_a_map_stands_beside_every_published_ranking(heads, capsys):
    command = ["crossref", str(heads), "--published", "gpt2", "--n-resamples", "99"]
    assert run(command) == 0
    printed = capsys.readouterr().out
    for text in (
        "evidence beside published rankings of gpt2", "mediation, indirect, WinoBias dev",
        "of top 10 (chance)", "The run's model is called tiny-gpt2",
    ):  # fmt: skip
        assert text in printed
    found = PublishedAgreement.load(heads / "published-gpt2").agreement
    expected = against_published(HeadBias.load(heads), "gpt2", n_resamples=99)
    assert found["spearman"].tolist() == pytest.approx(expected["spearman"].tolist())
    assert found["p"].tolist() == expected["p"].tolist()
    assert run([*command, "--by", "relative", "--overwrite", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["agreement"]
    assert {row["first"] for row in rows} == {"relative"}
    assert run(["show", str(heads / "published-gpt2")]) == 0
    assert "relative beside published rankings" in capsys.readouterr().out
