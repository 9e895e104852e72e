import sys
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pvf.social import load_factors, regress, regressions
from tda_bias.types import InputError
from tests.support.golden import GOLDEN

(TOY,) = GOLDEN["regression_cases"]


@pytest.mark.parametrize("fit", ["ols", "wls"])
def test_the_regression_is_the_reference_one(fit):
    x, y, w = (pd.Series(TOY["input"][name]) for name in "xyw")
    found = regress(y, pd.DataFrame({"pay": x}), w if fit == "wls" else None).iloc[0]
    expected = TOY["expected"][fit]
    for name in ("intercept", "slope", "r2"):
        assert found[name] == pytest.approx(expected[name], abs=1e-10)
    for name in ("se", "t", "p"):
        assert found[name] == pytest.approx(expected[f"{name}_slope"], abs=1e-10)


def test_robust_errors_are_hc3():
    generator = np.random.default_rng(0)
    x = generator.normal(size=30)
    y = 0.3 * x + generator.normal(size=30) * np.abs(x)
    row = regress(pd.Series(y), pd.DataFrame({"f": x})).iloc[0]
    design = np.column_stack([np.ones(30), x])
    bread = np.linalg.inv(design.T @ design)
    residual = y - design @ bread @ design.T @ y
    leverage = np.einsum("ij,jk,ik->i", design, bread, design)
    meat = design.T @ (design * (residual / (1 - leverage))[:, None] ** 2)
    assert row["se_hc3"] == pytest.approx(np.sqrt((bread @ meat @ bread)[1, 1]))


def write(tmp_path, text):
    path = tmp_path / "factors.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x\nnurse\n", "must have the columns x,factor"),
        ("x,pay\nnurse,high\n", "line 2: pay must be a number; got 'high'"),
        ("x,pay,weight\nnurse,1,\n", "line 2: weight must be 0 or more; got ''"),
        ("x,pay\n", "has no row"),
    ],
)
def test_a_malformed_table_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        load_factors(write(tmp_path, text), ())


def test_every_factor_alone_and_all_together(tmp_path):
    words = [f"job{i}" for i in range(12)]
    generator = np.random.default_rng(1)
    table = pd.DataFrame({"x": words, "pay": generator.normal(size=12)})
    table["share"] = generator.uniform(size=12)
    table["weight"] = generator.uniform(1, 9, size=12)
    table.loc[3, "share"] = np.nan
    path = tmp_path / "f.csv"
    table.to_csv(path, index=False)
    by_x = pd.DataFrame({"x": [*words, "other"], "r": generator.uniform(size=13)})
    factors = load_factors(path, words)
    assert np.isnan(factors.loc["job3", "share"])
    assert factors["weight"].to_dict() == pytest.approx(
        dict(zip(words, table["weight"], strict=True))
    )
    found = regressions(by_x, factors)
    assert len(found) == 2 * (1 + 1 + 2)
    alone = found[(found["factors"] == "alone") & (found["fit"] == "OLS")].set_index("factor")
    assert alone.loc["pay", "n"] == 12
    assert alone.loc["share", "n"] == 11
    np.testing.assert_allclose(
        alone.loc["pay", "slope"], np.polyfit(table["pay"], by_x["r"][:12], 1)[0]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job1,1\njob2,2\nelse,3\n", "has 2 of the 9 measured words, 4 are needed"),
        ("".join(f"job{i},5\n" for i in range(8)), "pay: a factor is constant"),
    ],
)
def test_factors_that_cannot_be_fitted_are_refused(tmp_path, text, message):
    by_x = pd.DataFrame({"x": [f"job{i}" for i in range(9)], "r": np.arange(9.0)})
    with pytest.raises(InputError, match=message):
        regressions(by_x, load_factors(write(tmp_path, f"x,pay\n{text}"), ()))


def test_the_official_shares_of_women_need_no_file():
    table = pd.read_csv(
        files("tda_bias.data") / "pairs/winogender/occupations-stats.tsv", sep="\t"
    ).set_index("occupation")["bls_pct_female"]
    factors = load_factors("bls", ())
    assert list(factors) == ["share of women, %"]
    assert factors.iloc[:, 0].to_dict() == table.to_dict()
    words = [*table.index[:20], "else"]
    r = np.random.default_rng(0).uniform(size=21)
    found = regressions(pd.DataFrame({"x": words, "r": r}), factors).iloc[0]
    assert found["n"] == 20
    assert found["slope"] == pytest.approx(np.polyfit(table.iloc[:20], r[:20], 1)[0])


def test_word_frequencies_come_from_wordfreq_or_say_how(monkeypatch):
    zipf = {"nurse": 4.6, "smith": 0.0}  # 0: in no list
    package = SimpleNamespace(zipf_frequency=lambda word, language: zipf[word])
    monkeypatch.setitem(sys.modules, "wordfreq", package)
    found = load_factors("frequency", ["nurse", "smith"])["word frequency, Zipf scale"]
    assert found["nurse"] == 4.6
    assert np.isnan(found["smith"])
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(InputError, match=r"needs wordfreq; pip install 'tdabias\[frequency\]'"):
        load_factors("frequency", ["nurse"])
