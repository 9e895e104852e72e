"""``tdabias edit`` from the command line to a folder that loads."""

import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from tda_bias.types import HeadId
from tdabias_cli.main import run


@pytest.fixture
def call(tmp_path, capsys):
    def calling(*arguments, out=None):
        status = run(["edit", *map(str, arguments), "--out", str(out or tmp_path / "edited")])
        return status, *capsys.readouterr()

    return calling


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--head", "L9H0", "--how", "zero"], "L9H0 does not exist: `model`"),
        (["--head", "L0H4", "--how", "zero"], "has layers 0 to 1 with heads 0 to 3"),
        (["--head", "5,3", "--how", "zero"], "`head` must look like L5H3"),
        (["--head", "L0H1", "--how", "half"], "`how` must be zero, mean or scale=NUMBER"),
        (["--how", "zero"], "heads come from --head, from --heads FILE or from a run; got none"),
        (["--head", "L0H1"], "`how` is missing; give --how"),
        (["--heads", "none.json", "--how", "zero"], "`heads` none.json: No such file"),
    ],
)
def test_unusable_input_ends_with_one_line_and_no_folder(
    call, tiny_folder, tmp_path, options, message
):
    status, printed, error = call("--model", tiny_folder, *options)
    assert (status, printed) == (2, "")
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == []


def test_an_existing_folder_is_refused(call, tiny_folder, tmp_path):
    folder = tmp_path / "edited"
    folder.mkdir()
    status, _, error = call("--model", tiny_folder, "--head", "L0H1", "--how", "zero")
    assert status == 2
    assert "exists; a model is written into a new folder" in error
    assert list(folder.iterdir()) == []


def test_a_file_that_export_did_not_write_is_refused(call, tmp_path, tiny_folder):
    path = tmp_path / "heads.json"
    for text in ("nonsense", '{"heads": []}', "[]"):
        path.write_text(text)
        status, _, error = call("--model", tiny_folder, "--heads", path, "--how", "zero")
        assert status == 2
        assert "no file that `tdabias export` wrote" in error
    path.write_text(json.dumps({"format": "tdabias heads 1", "heads": []}))
    assert "holds no head" in call("--model", tiny_folder, "--heads", path, "--how", "zero")[2]
    path.write_text(json.dumps({"format": "tdabias heads 1", "heads": [{"layer": 0, "head": 1}]}))
    assert "names no model; give --model" in call("--heads", path, "--how", "zero")[2]


def state(folder):
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()


def test_heads_are_named_on_the_command_line(call, tiny_folder, tmp_path):
    status, printed, _ = call(
        "--model", tiny_folder, "--head", "L0H1", "--head", "l1h3", "--how", "zero"
    )
    assert status == 0
    assert "zero of L0H1, L1H3" in printed
    assert "compared with the hooked model (TransformerLens)" in printed
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


def test_an_edit_is_told_to_other_programs_and_nothing_to_nobody(call, tiny_folder, tmp_path):
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
    assert call(*what, "--quiet", out=tmp_path / "third") == (0, "", "")


def test_an_exported_file_is_edited_and_other_weights_are_said(call, tiny_folder, tmp_path):
    about = {"name": str(tiny_folder), "weights": "others"}
    heads = {"format": "tdabias heads 1", "model": about, "heads": [{"layer": 1, "head": 0}]}
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(heads))
    status, printed, _ = call("--heads", path, "--how", "scale=0.5")
    assert status == 0
    assert "scale=0.5 of L1H0" in printed
    assert "found in a model with other weights" in printed
    before, after = state(tiny_folder), state(tmp_path / "edited")
    name = "transformer.h.1.attn.c_proj.weight"
    torch.testing.assert_close(after[name][:8], before[name][:8] * 0.5)


def test_the_top_heads_of_a_run_are_edited(call, tiny_folder, heads_run, tmp_path):
    named = heads_run.with_record(settings={"model": str(tiny_folder), "group": []})
    named.save(tmp_path / "run")
    status, printed, error = call(
        tmp_path / "run", "--top", 2, "--category", "gender", "--how", "mean", "--data", "starter"
    )
    assert status == 0, error
    top = heads_run.top(2, category="gender").to_dict("records")
    for row in top:
        assert str(HeadId(row["layer"], row["head"])) in printed
    record = json.loads((tmp_path / "edited" / "edit.json").read_text())
    assert len(record["heads"]) == 2
    assert record["how"] == "mean"
    assert record["mean_over"] == "starter"
    status, _, error = call(
        tmp_path / "run", "--head", "L0H0", "--how", "zero", out=tmp_path / "other"
    )
    assert "got --head and a run" in error


def test_code_in_a_models_folder_is_named_and_not_run(call, tiny_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    (folder / "code.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')", encoding="utf-8")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"auto_map": {"AutoConfig": "code.Config"}, "model_type": "unknown"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, _, error = call("--model", folder, "--head", "L0H0", "--how", "zero")
    assert status == 2
    assert "its config.json names Python code (auto_map), which is never run" in error
    assert not (tmp_path / "run").exists()
