"""``tdabias edit`` from the command line to a folder that loads."""

import json
import shlex
import shutil

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from tda_bias import HeadBias, load_triples
from tda_bias.models.load import load_language_model
from tda_bias.store.record import DataRecord
from tda_bias.types import HeadId
from tdabias_cli.main import run
from tests.support.architectures import tiny
from tests.support.tokenizers import subwords_in


@pytest.fixture
def call(tmp_path, capsys):
    def calling(*arguments, out=None):
        status = run(["edit", *map(str, arguments), "--out", str(out or tmp_path / "edited")])
        return status, *capsys.readouterr()

    return calling


@pytest.fixture(scope="module")
def subwords(tmp_path_factory):
    return subwords_in(tmp_path_factory.mktemp("tokenizer"))


def state(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def test_heads_are_named_on_the_command_line(call, tiny_folder, tmp_path):
    status, printed, _ = call(
        "--model", tiny_folder, "--head", "L0H1", "--head", "l1h3", "--how", "zero"
    )
    assert status == 0
    printed = " ".join(printed.split())
    assert "zero of L0H1, L1H3" in printed
    assert "compared with the hooked model: logits differ by at most" in printed
    before, after = state(tiny_folder), state(tmp_path / "edited")
    assert set(before) == set(after)
    for name in before:
        changed = (before[name] != after[name]).nonzero()
        if name.endswith("attn.c_proj.weight"):  # Conv1D: heads are rows
            head = 1 if ".h.0." in name else 3
            assert sorted(set(changed[:, 0].tolist())) == list(range(8 * head, 8 * head + 8))
            assert float(after[name][8 * head : 8 * head + 8].abs().max()) == 0
        else:
            assert len(changed) == 0, name


def test_the_layers_of_a_hybrid_have_one_number_from_its_heads_to_the_edit(
    call, subwords, tmp_path, capsys
):
    """Two of LFM2's four layers have attention: a table that counted these would edit others."""
    folder = tmp_path / "hybrid"
    tiny("lfm2", len(subwords) + 4).save_pretrained(folder)
    subwords.save_pretrained(folder)
    of_model = "--model", str(folder), "--data", "starter", "--category", "gender", "--limit", "8"
    made = tmp_path / "run"
    assert run(["heads", *of_model, "--keep-patterns", "1", "--quiet", "--out", str(made)]) == 0
    result = HeadBias.load(made)
    for table in (result.table, result.combined, result.category, result.kept.table):
        assert set(table["layer"]) <= {1, 3}
    assert set(result.category["layer"]) == {1, 3} == set(result.example.layers)
    status, printed, _ = call(made, "--top", "2", "--how", "zero", "--format", "json")
    assert status == 0
    chosen = result.top(2)
    told = json.loads(printed)
    assert told["heads"] == [f"L{r.layer}H{r.head}" for r in chosen.itertuples()]
    layers = {int(name.split(".")[2]) for name in told["parameters"]}
    assert layers == set(chosen["layer"])
    drawn = ["--only", "fig2_pattern", "--as", "png", "--out", str(tmp_path / "drawn")]
    assert run(["figures", str(made), *drawn]) == 0
    assert run(["confirm", str(made), "--top", "2", "--out", str(tmp_path / "confirmed")]) == 0
    assert set(pd.read_csv(tmp_path / "confirmed" / "confirm.csv")["layer"]) <= {1, 3}


def test_an_edit_is_told_to_other_programs(call, tiny_folder, tmp_path):
    what = ("--model", tiny_folder, "--head", "L1H3", "--how", "scale=0.5")
    status, printed, _ = call(*what, "--format", "json")
    assert status == 0
    told = json.loads(printed)
    assert told["heads"] == ["L1H3"]
    assert told["folder"] == str(tmp_path / "edited")
    assert told["parameters"] == ["transformer.h.1.attn.c_proj.weight"]
    assert told["check"]["difference"] <= told["check"]["allowed"]
    _, printed, _ = call(*what, "--format", "csv", out=tmp_path / "second")
    assert printed == "layer,head,how\n1,3,scale=0.5\n"


def test_an_exported_file_is_edited_and_other_weights_are_said(call, tiny_folder, tmp_path):
    about = {"name": str(tiny_folder), "weights": "others"}
    heads = {"format": "tdabias heads 1", "model": about, "heads": [{"layer": 1, "head": 0}]}
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(heads))
    status, printed, _ = call("--heads", path, "--how", "scale=0.5")
    assert status == 0
    assert "scale=0.5 of L1H0" in printed
    assert "found in a model with other weights" in " ".join(printed.split())
    before, after = state(tiny_folder), state(tmp_path / "edited")
    name = "transformer.h.1.attn.c_proj.weight"
    torch.testing.assert_close(after[name][:8], before[name][:8] * 0.5)


def test_weights_stored_in_half_precision_are_those_of_a_run_in_single_precision(
    call, tiny_folder, tmp_path
):
    folder = shutil.copytree(tiny_folder, tmp_path / "half")
    AutoModelForCausalLM.from_pretrained(folder).to(torch.bfloat16).save_pretrained(folder)
    weights = load_language_model(str(folder), dtype="float32").weight_hash()
    about = {"name": str(folder), "weights": weights, "dtype": "float32"}
    heads = {"format": "tdabias heads 1", "model": about, "heads": [{"layer": 1, "head": 0}]}
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(heads))
    status, printed, _ = call("--heads", path, "--how", "zero")
    assert status == 0
    assert "found in a model with other weights" not in " ".join(printed.split())


def test_the_top_heads_of_a_run_are_edited(call, tiny_folder, heads_run, tmp_path):
    about = {"settings": {"model": str(tiny_folder), "group": []}}
    named = heads_run.with_record(**about, data=DataRecord(source="stereoset", revision="r9"))
    named.save(tmp_path / "run")
    status, printed, error = call(
        tmp_path / "run", "--top", 2, "--category", "gender", "--how", "mean", "--data", "starter"
    )
    assert status == 0, error
    top = heads_run.top(2, category="gender").to_dict("records")
    for row in top:
        assert str(HeadId(row["layer"], row["head"])) in printed
    record = json.loads((tmp_path / "edited" / "edit.json").read_text())
    card = (tmp_path / "edited" / "README.md").read_text()
    assert "stereoset, revision r9" in card
    assert "CC BY-SA 4.0" in card
    assert card.startswith("---\nbase_model: ")
    for said in (record["heads"][0], record["weights"]["after"], "tdabias compare"):
        assert said in card
    assert len(record["heads"]) == 2
    assert record["how"] == "mean"
    assert record["mean_over"] == "starter"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top", "1", "--how", "zero"], "`top` chooses among the heads of a run"),
        (["--category", "race", "--how", "zero"], "`category` chooses among the heads of a run"),
        (["--rank-by", "metric", "--how", "zero"], "`rank_by` chooses among the heads of a run"),
        (["--random-seed", "0", "--how", "zero"], "`random_seed` chooses among the heads of a run"),
        (["--data", "starter", "--how", "zero"], "`data` is what a mean is over"),
    ],
)
def test_options_that_would_choose_nothing_are_refused(call, tiny_folder, options, message):
    status, _, error = call("--model", tiny_folder, "--head", "L0H0", *options)
    assert status == 2
    assert message in error


@pytest.mark.parametrize("of", ["a run", "a head"])
def test_the_command_of_a_card_gives_the_same_mean(call, heads, tiny_folder, tmp_path, of):
    mine = tmp_path / "mine.jsonl"
    rows = [
        {"target": t.group, "bias_type": t.category, "context": t.context,
         "stereotype": t.stereotype, "anti-stereotype": t.anti_stereotype,
         "unrelated": t.unrelated}
        for t in load_triples("starter", category="gender", limit=2)
    ]  # fmt: skip
    mine.write_text("\n".join(map(json.dumps, rows)))
    chosen = {
        "a run": [heads, "--top", 1, "--random-seed", 0],
        "a head": ["--model", tiny_folder, "--head", "L0H1", "--data", mine],
    }[of]
    status, printed, _ = call(*chosen, "--how", "mean")
    assert status == 0
    drawn = "Drawn at random from the layers of the chosen heads" in " ".join(printed.split())
    assert drawn == (of == "a run")
    first = json.loads((tmp_path / "edited" / "edit.json").read_text())
    assert first["repeat"] in (tmp_path / "edited" / "README.md").read_text()
    command = shlex.split(first["repeat"])[2:]
    at = command.index("--out")
    assert call(*command[:at], *command[at + 2 :], out=tmp_path / "again")[0] == 0
    again = json.loads((tmp_path / "again" / "edit.json").read_text())
    assert again["heads"] == first["heads"]
    assert again["weights"] == first["weights"]


def test_an_edit_says_whether_its_ranking_had_survivors_and_what_comes_next(
    call, tiny_folder, heads, tmp_path
):
    status, printed, error = call(heads, "--top", 1, "--how", "zero")
    assert status == 0, error
    printed = " ".join(printed.split())
    assert not len(HeadBias.load(heads).survivors())
    assert "By its ranking no head of the run survives correction" in printed
    texts = "--category gender --data starter --limit 4"
    models = f"tdabias compare {tiny_folder} {tmp_path / 'edited'}"
    written = f"{models} --only respond --out {tmp_path / 'edited'}-respond"
    assert f"NEXT {models} {texts} {written} Model" in printed


# -- slices ----------------------------------------------------------------------------------------


def test_random_heads_of_the_same_layers_are_exported_as_a_control(heads, tmp_path, capsys):
    chosen, control = (tmp_path / name for name in ("a.json", "b.json"))
    assert run(["edit", str(heads), "--as", "slices", "--top", "2", "--out", str(chosen)]) == 0
    more = ["--random-seed", "3", "--as", "slices", "--out", str(control)]
    assert run(["edit", str(heads), "--top", "2", *more]) == 0
    assert "Drawn at random" in capsys.readouterr().out
    found = [json.loads(path.read_text()) for path in (chosen, control)]
    layers, names = (
        [sorted(head[key] for head in one["heads"]) for one in found] for key in ("layer", "name")
    )
    assert layers[0] == layers[1]
    assert not set(names[0]) & set(names[1])
    assert found[1]["rule"]["random_seed"] == 3


@pytest.mark.parametrize("by", [None, "relative", "metric"])
def test_the_top_heads_of_a_map_are_exported_with_their_slices(heads, tmp_path, capsys, by):
    to, more = tmp_path / "heads.json", ["--rank-by", by] if by else []
    assert run(["edit", str(heads), "--as", "slices", "--top", "3", "--out", str(to), *more]) == 0
    record = json.loads(to.read_text())
    assert [len(head["slices"]) for head in record["heads"]] == [7] * 3  # weights and biases
    assert record["rule"]["map"] == (by or "evidence")
    assert record["model"]["architecture"] == "GPT2LMHeadModel"
    top = HeadBias.load(heads).top(3, by=by).to_dict("records")
    assert [head["name"] for head in record["heads"]] == [f"L{r['layer']}H{r['head']}" for r in top]


def test_a_model_that_is_elsewhere_now_is_named(tiny_folder, tmp_path, monkeypatch, capsys):
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(tiny_folder, here / "models" / "tiny")
    there.mkdir()
    monkeypatch.chdir(here)
    texts = ["--data", "starter", "-c", "gender", "-L", "4", "--twins", "none", "--quiet"]
    made = ["heads", "-m", "models/../models/tiny", *texts, "--n-permutations", "99"]
    made += ["--out", "run"]
    assert run(made) == 0
    monkeypatch.chdir(there)
    export = ["edit", "../here/run", "--as", "slices", "--out", "x.json", "--top", "1"]
    assert run(export) == 2
    error = capsys.readouterr().err
    assert "the model models/../models/tiny is not here" in error
    assert error.strip().endswith("say where it is with --model")
    assert run([*export, "--model", "../here/models/tiny"]) == 0
    ablate = ["ablate", "../here/run", "--top", "1", "--limit", "2", "--twins", "none", "--quiet"]
    assert run([*ablate, "--out", "effects"]) == 2
