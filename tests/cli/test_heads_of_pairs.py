"""``tdabias heads --pairs``: heads ranked on two texts instead of three."""

import numpy as np
import pandas as pd
import pytest

from tda_bias import HeadBias, HeadBiasConfig, head_bias, load_triples
from tda_bias.models.load import load_model
from tda_bias.pairs import load_pairs, pair_triples
from tda_bias.types import InputError, Triple
from tdabias_cli.main import run
from tests.support.pairs import write_lines

LINES = [
    {
        "id": f"{group} {n}",
        "group": group,
        "more": f"The {group} {more}",
        "less": f"The {group} {less}",
    }
    for group in ("girl", "boy")
    for n, (more, less) in enumerate(
        [("sang a song", "was strong"), ("is in the kitchen", "is in the rain"), ("sang", "was in")]
    )
]


@pytest.fixture
def call(tiny_folder, tmp_path, capsys):
    def calling(*more):
        out = ["--out", str(tmp_path / "out"), "--n-permutations", "99"]
        status = run(["heads", "--model", str(tiny_folder), *map(str, more), *out])
        return status, *capsys.readouterr()

    return calling


def test_triples_and_pairs_are_not_mixed(tiny):
    triples = load_triples("starter", category="gender", limit=2)
    mixed = [*triples, Triple("girl", "gender", "", "The girl sang", "The girl was", "")]
    with pytest.raises(InputError, match="mixes triples with pairs"):
        head_bias(tiny("gpt2"), mixed, twins=None)


def test_pairs_rank_heads_as_triples_do_whose_unrelated_texts_are_not_looked_at(tiny, gender):
    """Everything but S is of the two texts alone."""
    config = HeadBiasConfig(n_permutations=99, rank_by="relative")
    pairs = [Triple(t.group, t.category, t.context, t.stereotype, t.anti_stereotype, "")
             for t in gender]  # fmt: skip
    longest = max(len(t.texts()[2].split()) for t in gender)
    # Step functions are as fine as the largest set, so the unrelated text must not be the longest.
    short = [Triple(t.group, t.category, t.context, t.stereotype, t.anti_stereotype, "sang rain")
             for t in gender]  # fmt: skip
    assert longest > 3
    with_unrelated, without = (head_bias(tiny("gpt2"), texts, twins=None, config=config)
                               for texts in (short, pairs))  # fmt: skip
    same = ["group", "layer", "head", "dim", "var_stereotype", "var_anti", "relative", "location"]
    same += ["p_location", "p_max_location", "q_location"]
    pd.testing.assert_frame_equal(without.table[same], with_unrelated.table[same], rtol=1e-5)
    pd.testing.assert_frame_equal(without.top(8), with_unrelated.top(8), rtol=1e-4)
    assert without.table["S"].isna().all()
    assert with_unrelated.table["S"].notna().all()
    assert set(without.table["reason"]) == {"no unrelated texts"}


def test_a_file_of_pairs_is_ranked_printed_and_read_again(call, tmp_path, tiny_folder, capsys):
    path = write_lines(tmp_path, *LINES)
    status, printed, error = call("--pairs", path, "--top", "3")
    assert status == 0, error
    for text in ("no unrelated texts", "S, whose denominator"):
        assert text in " ".join(printed.split())  # a long path wraps the title
    found = HeadBias.load(tmp_path / "out")
    assert found.categories == ["pairs"]
    assert found.record.texts.triples_used == len(LINES)
    model = load_model(str(tiny_folder), device="cpu")
    expected = head_bias(
        model, pair_triples(load_pairs(path)), twins=None, config=HeadBiasConfig(n_permutations=99)
    )
    np.testing.assert_allclose(found.top(8)["z"], expected.top(8)["z"])
    assert run(["show", str(tmp_path / "out")]) == 0
    assert run(["figures", str(tmp_path / "out"), "--out", str(tmp_path / "figures")]) == 0
    capsys.readouterr()
    for form in ([], ["--curve"]):  # what a model says is read from triples
        assert run(["ablate", str(tmp_path / "out"), *form]) == 2
        assert "the run compared pairs" in capsys.readouterr().err


def test_a_packaged_set_is_ranked(call, tmp_path):
    groups = ["--group", "nurse", "--group", "technician"]
    status, _, error = call("--pairs", "winogender", *groups)
    assert status == 0, error
    found = HeadBias.load(tmp_path / "out")
    assert found.categories == ["winogender"]
    assert set(found.groups["group"]) == {"nurse", "technician"}
    assert found.record.data.source == "packaged"


def test_heads_are_ranked_on_crows_in_french(tiny_folder, tmp_path):
    lines = [
        f"{n},The {who} said he knew,The {who} said she knew,stereo,{kind}"
        for kind in ("age", "gender")
        for n, who in enumerate(("cook", "nurse", "man", "woman", "girl", "boy"))
    ]
    head = "id,sent_more,sent_less,stereo_antistereo,bias_type\n"
    (tmp_path / "crows_french.csv").write_text(head + "\n".join(lines))
    given = ["--pairs", "crows-fr", "--data", str(tmp_path), "--n-permutations", "99", "--quiet"]
    out = ["--out", str(tmp_path / "run")]
    assert run(["heads", "--model", str(tiny_folder), *given, *out]) == 0
    assert HeadBias.load(tmp_path / "run").categories == ["crows-fr"]
