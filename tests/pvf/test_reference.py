"""References of one's own: what is refused, official shares, and reports that keep them."""

import numpy as np
import pandas as pd
import pytest

from pvf.config import RiskConfig
from pvf.papers import unlike_the_papers
from pvf.reference import Reference, load_reference
from pvf.report import comparison, load_report, refuse_other_risks, risk_options, risk_report
from pvf.risk import decompose
from pvf.shown import shown
from pvf.words import load_words
from tda_bias.pairs.published import female_shares
from tda_bias.store.run import open_run
from tda_bias.types import InputError
from tests.support.preferences import made_up

CLASSES = ("male", "female")
X, TEMPLATES = ("cook", "nurse"), ("The [X] said [Y]", "The [X] was [Y]")


def loaded(tmp_path, text, classes=CLASSES):
    path = tmp_path / "shares.csv"
    path.write_text(text)
    return load_reference(path, X, TEMPLATES, classes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("male,female\n.5,.5\n", "has no column `x`"),
        ("x,male,female\n", "has no row"),
        ("x,men,women\ncook,.5,.5\n", "'men' is no class; the classes are male, female"),
        ("x,male\ncook,.5\n", "no column 'female'; the classes are"),
        ("x,male,female\ncook,0,1\n", "line 2: the share of male must be above 0"),
        ("x,male,female\ncook,.5,.5\nnurse,.5,.51\n", "line 3: .* sum to 1; they sum to 1.01"),
        ("x,male,female\ncook,.5,.500002\n", "line 2: the shares must sum to 1"),
        ("x,male,female\ncook,many,.5\n", "line 2: male must be a number; got 'many'"),
        ("x,male,female\ncook,nan,.5\n", "line 2: male must be a number; got 'nan'"),
        ("x,male,female\ncook,.5,.5\ncook,.5,.5\n", "line 3: 'cook' stands twice"),
        ("x,male,female\ncook,.5,.5\n", r"no row for 'nurse' \(1 of 2 words"),
        ("x,women\ncook,0\n", "the share of female must be above 0"),
        ("x,women\ncook,100\n", "the share of male must be above 0"),
        (
            "x,template,male,female\ncook,The [X] said [Y],.5,.5\n",
            "no row for 'cook' with the template 'The .* was",
        ),
    ],
)
def test_an_unusable_reference_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message) as caught:
        loaded(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_shares_stand_in_the_order_of_the_run(tmp_path):
    found = loaded(tmp_path, "female,x,male\n.9,nurse,.1\n.5,else,.5\n.4,cook,.6\n")
    assert found.shares.tolist() == [[0.6, 0.4], [0.1, 0.9]]
    women = loaded(tmp_path, "x,women\nnurse,90\ncook,40\n")
    np.testing.assert_allclose(women.shares, found.shares)
    rows = [
        f"{x},{t},.{n},.{10 - n}"
        for n, (x, t) in enumerate([(x, t) for x in X for t in TEMPLATES], start=1)
    ]
    both = loaded(tmp_path, "x,template,male,female\n" + "\n".join(rows))
    np.testing.assert_allclose(both.shares[..., 0], [[0.1, 0.2], [0.3, 0.4]])


def test_official_shares_are_those_of_winogender_and_need_men_and_women():
    words = load_words("winogender").words
    assert set(words) == set(female_shares())
    found = load_reference("bls", words, TEMPLATES, CLASSES)
    expected = [female_shares()[word]["bls"] / 100 for word in words]
    np.testing.assert_allclose(found.shares[:, 1], expected)
    np.testing.assert_allclose(found.shares.sum(1), 1)
    with pytest.raises(InputError, match="no row for 'ambassador'.*--words winogender"):
        load_reference("bls", ("ambassador", "nurse"), TEMPLATES, CLASSES)
    with pytest.raises(InputError, match="male and female; the run's are white, black"):
        load_reference("bls", words, TEMPLATES, ("white", "black"))


SHARES = np.random.default_rng(0).dirichlet([4, 4], size=5)


@pytest.mark.parametrize("shares", [SHARES, np.repeat(SHARES[:, None], 3, axis=1), SHARES[0]])
def test_a_report_against_a_reference_is_saved_and_computed_anew(tmp_path, shares):
    reference, config = Reference.of(shares, "mine", "mine.csv"), RiskConfig(criterion="l3")
    report = risk_report(made_up(), config=config, reference=reference)
    report.save(tmp_path)
    found = load_report(tmp_path)
    for name in ("by_x", "summary", "variants"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(report, name))
    assert found.against == "mine"
    options = risk_options(open_run(tmp_path))
    assert (options["reference"], options["criterion"]) == ("mine.csv", "l3")
    refuse_other_risks(tmp_path, config, None, reference)
    for other in (None, Reference.of(np.full(2, 0.5), "mine", "mine.csv")):
        with pytest.raises(InputError, match="holds risks with other settings"):
            refuse_other_risks(tmp_path, config, None, other)
    risk_report(made_up(), reference=Reference.of(shares, "mine")).save(tmp_path, overwrite=True)
    with pytest.raises(InputError, match="`reference` is of no file"):
        risk_options(open_run(tmp_path))


def test_equality_and_the_reference_stand_side_by_side_and_name_their_scale(tmp_path):
    preferences = made_up()
    report = risk_report(preferences, reference=Reference.of(SHARES, "mine"))
    given = {"context_weights": preferences.counts}
    p = preferences.by_class().p
    own, equal = decompose(p, reference=SHARES, **given), decompose(p, **given)
    table = report.summary.set_index(["name", "against"])
    assert table["R"]["model-0", "mine"] == own.R
    assert table["R_v"]["model-0", "equality"] == pytest.approx(equal.R_v)  # K = 2
    np.testing.assert_allclose(report.by_x["r"], own.r)
    np.testing.assert_allclose(report.by_x["r_equality"], equal.r)
    np.testing.assert_allclose(report.by_x["reference_female"], SHARES[:, 1])
    for one in (report.summary, report.variants, report.by_x):
        assert set(one["scale"]) == {"p/p* - 1"}
        assert set(one["criterion"]) >= {"linf"}
    output = shown(report, tmp_path)
    assert "against equality" in output.shown[0].result[0]
    assert "p/p* - 1" in output.shown[1].title
    assert "against" in [column.heading for column in output.shown[1].columns]
    with pytest.raises(InputError, match="references or criteria"):
        comparison({"a": report, "b": risk_report(made_up(1))})
    assert "preferences are compared with a reference" in unlike_the_papers(report, "gender")


def test_another_norm_is_that_of_every_table():
    three = made_up(words=("he", "him", "she"), class_of=(0, 0, 1))
    report = risk_report(three, config=RiskConfig(criterion="l3"))
    expected = decompose(three.by_class().p, context_weights=three.counts, criterion="l3")
    np.testing.assert_array_equal(report.by_x["r"], expected.r)
    variants = report.variants.set_index("variant")
    assert set(report.by_x["criterion"]) == {"l3"}
    assert variants["criterion"]["criterion linf"] == "linf"
    assert variants["scale"]["scale bvf"] == "K p - 1"
    with pytest.raises(ValueError, match="got 'l0'"):
        RiskConfig(criterion="l0")
