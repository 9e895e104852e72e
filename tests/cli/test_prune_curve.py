"""``tdabias prune-curve`` from a run to its table, files and figure."""

import pytest

from tda_bias import HeadBiasConfig, head_bias, load_triples
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.models.load import load_model
from tdabias_cli.main import run


@pytest.fixture(scope="module")
def finished(tiny_folder, tmp_path_factory):
    triples = load_triples("starter", category="gender", limit=3)
    model = load_model(str(tiny_folder), device="cpu")
    result = head_bias(model, triples, twins=None, config=HeadBiasConfig(n_resamples=99))
    folder = tmp_path_factory.mktemp("runs") / "heads"
    settings = {"model": str(tiny_folder), "category": "gender", "group": []}
    result.with_record(settings=settings, data={"source": "starter", "revision": None}).save(folder)
    return folder


@pytest.fixture
def call(finished, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("My sister came in and sang a song. " * 40)

    def calling(*arguments, out=tmp_path / "out"):
        status = run(
            ["prune-curve", str(finished), "--out", str(out), "--text", str(text), "--width", "32",
             "--windows", "2", "--limit", "3", "--n-resamples", "99", *map(str, arguments)]
        )  # fmt: skip
        return status, *capsys.readouterr()

    return calling


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "evidence,beauty"], "`by` must name rankings among evidence, location"),
        (["--by", "random"], "`by` must name rankings among"),
        (["--n-random", "5"], "`n_random` must be"),
        (["--category", "race"], "`category` must be one of gender; got 'race'"),
        (["--text", "none.txt"], "`data` 'none.txt' is no folder with a file"),
    ],
)
def test_unusable_input_ends_with_one_line(call, options, message, tmp_path):
    status, printed, error = call(*options)
    assert (status, printed) == (2, "")
    assert message in error
    assert not (tmp_path / "out" / "run.json").exists()


def test_all_rankings_stand_against_random_orders(call, tmp_path):
    status, printed, error = call("--n-random", 19, "--verbose")
    assert status == 0, error
    found = PruneCurve.load(tmp_path / "out")
    assert list(found.chosen["ranking"]) == ["evidence", "importance", "effect"]
    assert found.curve.groupby("ranking")["draw"].nunique()["random"] == 19
    assert set(found.curve["k"]) == {0, 1, 2, 4}
    assert found.record.quantity == "beta"
    assert len(found.record.choosing) == 2
    assert (tmp_path / "out" / "prune_curve.png").is_file()
    assert "Numbers of heads were chosen on" in printed
    assert found.chosen["p_random"].between(1 / 20, 1).all()


def test_rounded_numbers_say_so(call, tmp_path):
    options = ["--by", "evidence", "--most", "1", "--n-random", "19", "--precision", "bfloat16"]
    status, out, err = call(*options)
    assert status == 0, err
    assert "computed in bfloat16: numbers are rounded" in " ".join(out.split())
    assert PruneCurve.load(tmp_path / "out").record.precision == "bfloat16"


def test_without_twins_log_odds_are_brought_to_zero(call, tmp_path):
    status, _, error = call("--twins", "none", "--by", "evidence")
    assert status == 0, error
    found = PruneCurve.load(tmp_path / "out")
    assert found.record.quantity == "log_odds"
    assert "beta_test" not in found.curve
