"""``tdabias debias`` from the command line to a saved, checked model, on a tiny one."""

import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from tda_bias import load_triples
from tda_bias.ablation.head_weights import head_slices, heads_of_file
from tda_bias.debias import experiment, protocol, run_debias, saved_model
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.debias.shown import shown
from tda_bias.debias.training_data import training_texts
from tda_bias.triples import read_triples
from tda_bias.twins import make_twins, save_twins
from tda_bias.types import HeadId, InputError
from tdabias_cli.main import run
from tests.support.runs import resealed

TINY = ("--category", "gender", "--data", "starter", "--limit", "3", "--top", "2")
CONTROLS = "all,placebo,plain,full,cda,leace,steering"
LOOSE = ("--allowed", "100")
WHOLE = (
    *LOOSE, "--how", "gates", "--rank-by", "effect,mediation", "--n-random", "2",
    "--controls", CONTROLS, "--folds", "2", "--epochs", "6", "--train-items", "24", "--limit", "6",
)  # fmt: skip
SMALL = ("--n-random", "1", "--epochs", "1", "--train-items", "4")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Neutral text of the words that the tiny tokenizer knows."""
    path = tmp_path_factory.mktemp("text") / "neutral.txt"
    lines = [t.texts()[2] for t in load_triples("starter")]
    path.write_text("\n\n".join(lines * 20), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(tiny_folder, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "gates"
    status = run(
        ["debias", "--model", str(tiny_folder), *TINY, *WHOLE, "--text", str(text),
         "--out", str(out)]
    )  # fmt: skip
    assert status == 0
    return out


@pytest.fixture(scope="module")
def small(tiny_folder, text, tmp_path_factory):
    """A run of three short trainings."""
    out = tmp_path_factory.mktemp("runs") / "small"
    options = [*TINY, *SMALL, "--text", str(text), "--out", str(out)]
    assert run(["debias", "--model", str(tiny_folder), *options]) == 0
    return out


def called(capsys, tiny_folder, text, *options):
    status = run(["debias", "--model", str(tiny_folder), *TINY, "--text", str(text), *options])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--top", "8"], "`top` must be below the model's 8 heads"),
        (
            ["--save", "gates"],
            "`save` must be of effect, random, whose weights this run trains",
        ),
        (
            ["--category", "all"],
            "`category` must be one of gender, profession, race, religion, because the others",
        ),
        (["--category", "religion"], "targets that train, validate and test must be others"),
    ],
)
def test_unusable_input_ends_with_one_line_and_no_folder(
    capsys, tiny_folder, text, tmp_path, options, message
):
    out = tmp_path / "run"
    status, printed, error = called(capsys, tiny_folder, text, *options, "--out", str(out))
    assert (status, printed) == (2, "")
    assert message in error
    assert "Traceback" not in error
    assert not (out / "run.json").exists()


def test_heads_found_in_a_model_with_other_weights_are_refused(
    finished, capsys, tiny_folder, text, tmp_path
):
    record = json.loads((finished / "heads.json").read_text())
    path = tmp_path / "heads.json"
    path.write_text(json.dumps(record | {"model": {"weights": "others"}}), encoding="utf-8")
    given = ["--rank-by", "file", "--heads", str(path), "--out", str(tmp_path / "run")]
    status, _, error = called(capsys, tiny_folder, text, "--limit", "6", *given)
    assert status == 2
    assert "found in a model with other weights" in error


def test_all_heads_of_a_file_are_trained_and_compared_with_as_many(
    finished, capsys, tiny_folder, text, tmp_path
):
    record = json.loads((finished / "heads.json").read_text())
    names = [{"layer": 0, "head": 1}, {"layer": 1, "head": 0}, {"layer": 1, "head": 3}]
    path, out = tmp_path / "heads.json", tmp_path / "run"
    path.write_text(json.dumps(record | {"heads": names}), encoding="utf-8")
    given = ["--rank-by", "file", "--heads", str(path), "--out", str(out), *SMALL]
    status, _, error = called(capsys, tiny_folder, text, *given)  # --top 2
    assert status == 2
    assert "`top` must be 3, as many as `heads` has, or be left out; got 2" in error
    without = [option for option in TINY if option not in ("--top", "2")]
    assert run(["debias", "--model", str(tiny_folder), *without, "--text", str(text), *given]) == 0
    table = pd.read_csv(out / "conditions.csv").set_index("condition")
    assert table.loc[["file", "random"], "heads"].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--preset", "full"], "`controls` leace needs the package concept-erasure"),
        (
            ["--preset", "full", "--twins", "none"],
            "`controls` cda, leace, placebo, steering need twins",
        ),
        (["--text", "crows_pairs_anonymized.csv"], "`text` crows_pairs_anonymized.csv is CrowS"),
    ],
)
def test_what_a_preset_s_controls_need_is_checked_before_the_model_is_loaded(
    capsys, tiny_folder, text, tmp_path, monkeypatch, options, message
):
    from transformers import PreTrainedModel

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    monkeypatch.setitem(sys.modules, "concept_erasure", None)
    out = tmp_path / "run"
    status, printed, error = called(
        capsys, tiny_folder, text, *options, "--pairs", "none", "--out", str(out)
    )
    assert (status, printed) == (2, "")
    assert message in error
    assert not out.exists()


def test_architectures_whose_heads_cannot_be_cut_are_refused_before_weights_are_loaded(
    tmp_path, text, monkeypatch, capsys
):
    from transformers import PreTrainedModel

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    refused = {
        "codegen": (
            {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
            "attn.qkv_proj",
        ),
        "mamba": ({"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}, "no attention"),
        "albert": (sizes | {"embedding_size": 16, "intermediate_size": 48}, "share their weights"),
        "hrm_text": (sizes | {"intermediate_size": 48}, "has several stacks of layers"),
        "jetmoe": (sizes | {"intermediate_size": 48}, "self_attention.experts"),
    }
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    for kind, (config, named) in refused.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": kind, **config}))
        out = tmp_path / "out"
        status, _, error = called(capsys, folder, text, "--out", str(out))
        assert status == 2, kind
        assert named in error, kind
        assert len(error.splitlines()) == 1
        assert not out.exists()


def test_the_run_leaves_what_it_promises(finished):
    names = {path.name for path in finished.iterdir()}
    made = ("conditions.csv", "heads.json", "model", "run.json", "frontier.png", "protocol.json")
    assert set(made) <= names
    table = pd.read_csv(finished / "conditions.csv")
    assert table["condition"].tolist() == [
        "untouched", "effect", "mediation", *CONTROLS.split(","), "random",
    ]  # fmt: skip
    record = json.loads((finished / "run.json").read_text())
    protocol = json.loads((finished / "protocol.json").read_text())
    assert record["protocol_hash"] == protocol["hash"]
    assert record["fixed"] <= record["created"]
    tests = [target for fold in record["folds"] for target in fold["test"]]
    assert len(tests) == len(set(tests))
    for fold in record["folds"]:
        parts = [set(fold[name]) for name in ("train", "validation", "test")]
        assert len(set.union(*parts)) == sum(map(len, parts))


def changed_weights(original_folder, finished, parts=frozenset("qkvo")) -> int:
    """Count the trained numbers, and check that all lie in the slices that heads.json names."""
    original = AutoModelForCausalLM.from_pretrained(original_folder)
    trained = AutoModelForCausalLM.from_pretrained(finished / "model").state_dict()
    heads = heads_of_file(finished / "heads.json")[0]
    slices = [s for head in heads for s in head_slices(original, head) if s.part in parts]
    changed = 0
    for (name, before), now in zip(original.state_dict().items(), trained.values(), strict=True):
        different = before != now
        changed += int(different.sum())
        for own in slices:
            if own.parameter == name:
                own.of(different).fill_(False)
        assert not different.any(), name
    return changed


def test_the_saved_model_differs_in_the_slices_of_heads_json_alone(finished, tiny_folder):
    changed = changed_weights(tiny_folder, finished, parts={"o"})
    assert changed > 0
    gates = {
        row["name"]: row["gate"]
        for row in json.loads((finished / "heads.json").read_text())["heads"]
    }
    assert all(gate != 1 for gate in gates.values())


def test_the_table_follows_from_the_items(finished):
    table = pd.read_csv(finished / "conditions.csv").set_index("condition")
    items = pd.read_parquet(finished / "items.parquet")
    for name, own in items[items["condition"] != "random"].groupby("condition"):
        assert table.loc[name, "beta"] == pytest.approx(own["beta"].mean(), abs=1e-9)
        assert table.loc[name, "rms"] == pytest.approx(np.sqrt((own["beta"] ** 2).mean()), abs=1e-9)
        assert table.loc[name, "before"] == pytest.approx(own["beta_before"].mean(), abs=1e-9)
    draws = items[items["condition"] == "random"].groupby("draw")["beta"].mean()
    assert table.loc["random", "beta"] == pytest.approx(draws.mean(), abs=1e-9)
    frontier = pd.read_csv(finished / "frontier.csv")
    assert (frontier[frontier["check"] == 0]["perplexity"].abs() < 1e-9).all()
    assert table["p"].dropna().between(1 / 3, 1).all()
    assert set(table.index[table["p"].notna()]) == {"effect", "mediation"}
    others = pd.read_csv(finished / "others.csv")
    assert set(others["category"]) == {"profession", "race", "religion"}
    assert set(others["condition"]) == set(table.index) - {"untouched", "random"}


def test_targets_of_all_trainings_that_were_compared_count_as_seen(finished):
    about = saved_model.read_about(finished / "model")
    folds = json.loads((finished / "run.json").read_text())["folds"]
    parts = ("train", "validation", "test", "twins")
    compared = {target for fold in folds for part in parts for target in fold[part]}
    assert set(about["targets"]["compared"]) == compared
    assert {target.casefold() for target in compared} <= about["seen"]


def test_a_record_that_lacks_something_is_no_record(finished, tmp_path):
    about = json.loads((finished / "model" / "debias.json").read_text())
    for name in ("protocol", "targets", "weights"):
        lacking = {key: value for key, value in about.items() if key != name}
        (tmp_path / "debias.json").write_text(json.dumps(lacking), encoding="utf-8")
        with pytest.raises(InputError, match="is no model that `tdabias debias` saved"):
            saved_model.read_about(tmp_path)


def test_the_frontier_is_drawn_again_from_the_saved_run(finished, tmp_path):
    out = tmp_path / "figures"
    arguments = ["figures", str(finished), "--only", "debias_frontier", "--as", "png"]
    assert run([*arguments, "--out", str(out)]) == 0
    assert (out / "debias_frontier.png").stat().st_size > 10_000


def test_a_finished_run_is_shown_again(finished, capsys):
    assert run(["show", str(finished), "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "target effect on unseen targets" in printed
    assert "mediation" in printed
    assert run(["show", str(finished), "--format", "json"]) == 0
    [one] = json.loads(capsys.readouterr().out)["verdicts"]
    assert (one["question"], one["verdict"]) == ("change", "cannot say")  # two folds


def test_a_run_with_controls_of_earlier_versions_is_shown(finished, tmp_path, capsys):
    old = shutil.copytree(finished, tmp_path / "old")

    def with_past_controls(record):
        record["protocol"]["controls"] += ["equalise", "cda-lora"]
        return record

    resealed(old, with_past_controls)
    assert run(["show", str(old), "--verbose"]) == 0
    assert "mediation" in capsys.readouterr().out


def test_the_card_says_what_was_trained_and_what_that_does_not_show(finished):
    card = (finished / "model" / "README.md").read_text(encoding="utf-8")
    audit = card[card.index("## Audit") :]
    assert "MEASURE 2.11" in audit
    assert "sets of random heads" in audit
    about = json.loads((finished / "model" / "debias.json").read_text())
    for target in about["targets"]["train"] + about["targets"]["validation"]:
        assert target in card
    assert about["protocol"] in card
    assert "What this does not show" in card
    assert "nan" not in card


def stopped_at_training(number, monkeypatch):
    """The function that trains, and a list with an entry for each of its calls."""
    real, calls = experiment.train, []

    def stopping(*arguments, **settings):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return real(*arguments, **settings)

    monkeypatch.setattr(experiment, "train", stopping)
    return real, calls


def test_a_stopped_run_goes_on_where_it_was_and_no_other_protocol_takes_its_place(
    small, tiny_folder, text, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "again"
    real, calls = stopped_at_training(2, monkeypatch)
    assert called(capsys, tiny_folder, text, *SMALL, "--out", str(out))[0] == 130
    protocol = (out / "protocol.json").read_bytes()
    other = [*SMALL, "--anchor", "2", "--out", str(out)]
    status, _, error = called(capsys, tiny_folder, text, *other)
    assert status == 2
    assert "holds trainings of another protocol" in error
    assert (out / "protocol.json").read_bytes() == protocol
    monkeypatch.setattr(experiment, "train", lambda *a, **s: (calls.append(1), real(*a, **s))[1])
    before = len(calls)
    assert called(capsys, tiny_folder, text, *SMALL, "--out", str(out))[0] == 0
    assert len(calls) - before == 1  # of two: the model that is saved was among them
    for name in ("conditions.csv", "frontier.csv", "trainings.csv"):
        expected, found = (pd.read_csv(folder / name) for folder in (small, out))
        pd.testing.assert_frame_equal(expected, found)


def test_a_changed_protocol_is_not_mixed_with_finished_trainings(small, tiny_folder, text, capsys):
    other = [*SMALL, "--anchor", "2", "--out", str(small)]
    status, _, error = called(capsys, tiny_folder, text, *other)
    assert status == 2
    assert "holds a finished run of `tdabias debias` with other settings" in error


def test_what_a_trained_model_says_and_writes_is_compared_next(small, tmp_path):
    trained = DebiasRun.load(small).with_record(unchanged=False)
    name, model = trained.record.model.name, tmp_path / "model"
    *compared, report = shown(trained, tmp_path).finding.next
    assert compared == [
        f"tdabias compare {name} {model} --category gender --data starter --limit 3",
        f"tdabias compare {name} {model} --only respond --out {model}-respond",
    ]
    assert report == f"tdabias report {tmp_path}"
    [report] = shown(trained.with_record(unchanged=True), tmp_path).finding.next
    assert report.startswith("tdabias report")


def test_where_no_check_passes_the_guards_the_model_stays_and_the_result_says_so(
    tiny_folder, text, tmp_path, capsys, monkeypatch
):
    def failing(now, before, protocol):
        return now is before  # the untouched model alone keeps its language

    monkeypatch.setattr("tda_bias.debias.training.keeps_language", failing)
    options = ["--epochs", "2", "--n-random", "1", "--train-items", "4"]
    out = tmp_path / "run"
    status, printed, _ = called(capsys, tiny_folder, text, *options, "--out", str(out))
    assert status == 0
    record = json.loads((out / "run.json").read_text())
    trainings = pd.read_csv(out / "trainings.csv")
    own = trainings[trainings["condition"] == record["recommended"]]
    assert own["best"].tolist() == [0]
    assert record["unchanged"]
    assert "the model that is saved is the original" in record["verdict"]
    # Equal weights cannot be compared.
    assert "tdabias compare" not in printed
    assert "--category gender --data starter" not in printed.partition("  Next ")[2]


def test_a_folder_that_is_no_saved_model_is_refused_before_anything_is_trained(
    tiny_folder, text, tmp_path, capsys
):
    kept = tmp_path / "run" / "model" / "mine.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine", encoding="utf-8")
    status, _, error = called(capsys, tiny_folder, text, *SMALL, "--out", str(tmp_path / "run"))
    assert status == 2
    assert "model holds something else; move it away" in error
    assert not list(tmp_path.glob("run/trainings/*"))
    assert kept.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("how", "writes"),
    [("tune", "safetensors.torch.save_file"), ("lora", "peft.PeftModel.save_pretrained")],
)
def test_a_full_disk_is_one_line_and_leaves_no_half_model(
    how, writes, tiny_folder, text, tmp_path, monkeypatch, capsys
):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    real, hashes = run_debias.save_debiased, []

    def watched(own, *arguments):
        hashes.append(own.corpus.model.weight_hash())
        try:
            return real(own, *arguments)
        finally:
            hashes.append(own.corpus.model.weight_hash())

    monkeypatch.setattr(writes, full)
    monkeypatch.setattr(run_debias, "save_debiased", watched)
    out = tmp_path / "run"
    options = [*LOOSE, *SMALL, "--how", how, "--out", str(out)]
    status, _, error = called(capsys, tiny_folder, text, *options)
    assert status == 2
    assert hashes[0] == hashes[1]
    assert "No space left on device" in error
    assert not (out / "model").exists()
    assert not (out / "run.json").exists()


@pytest.mark.parametrize(("how", "by"), [("tune", "evidence,gates"), ("lora", "importance")])
def test_tune_and_lora_change_the_slices_of_heads_json_alone(
    how, by, tiny_folder, text, tmp_path, capsys
):
    out = tmp_path / how
    options = [*LOOSE, "--how", how, "--rank-by", by, "--n-random", "1", "--epochs", "1"]
    options += ["--save", by.split(",")[0]]
    options += ["--limit", "6", "--train-items", "8", "--out", str(out)]
    assert called(capsys, tiny_folder, text, *options)[0] == 0
    trained = AutoModelForCausalLM.from_pretrained(out / "model")
    changed_weights(tiny_folder, out)
    if how == "lora":
        assert (out / "model" / "adapter" / "adapter_config.json").is_file()
    assert torch.isfinite(next(trained.parameters())).all()
    assert json.loads((out / "run.json").read_text())["recommended"] == by.split(",")[0]
    printed = capsys.readouterr().out
    assert "nan" not in printed + (out / "model" / "README.md").read_text(encoding="utf-8")
    tested = pd.read_parquet(out / "items.parquet")
    assert (tested.groupby("condition").size() == 6).all()


def test_models_of_controls_are_saved_too_and_each_is_what_its_card_says(
    tiny_folder, text, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(protocol.RATES, "full", (1e-3,))
    out, names = tmp_path / "run", ("effect", "random", "full", "plain")
    options = [*LOOSE, "--how", "tune", "--n-random", "2", "--controls", "full,plain"]
    options += ["--epochs", "2", "--limit", "6", "--train-items", "8"]
    options += ["--check-items", "4"]  # on these the whole model gains
    options += ["--save", ",".join(names), "--out", str(out)]
    assert called(capsys, tiny_folder, text, *options)[0] == 0
    original = AutoModelForCausalLM.from_pretrained(tiny_folder).state_dict()
    changed = {}
    for name in names:
        folder = out / "model" if name == "effect" else out / f"model-{name}"
        about = json.loads((folder / "debias.json").read_text(encoding="utf-8"))
        assert about["condition"] == name
        saved = AutoModelForCausalLM.from_pretrained(folder)
        now = saved.state_dict()
        changed[name] = {n for n, value in original.items() if not torch.equal(now[n], value)}
        inside = {
            piece.parameter
            for layer, head in (map(int, head[1:].split("H")) for head in about["heads"])
            for piece in head_slices(saved, HeadId(layer, head))
        }
        assert changed[name] <= inside or name == "full"
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert ("the whole model of the condition" in card) == (name == "full")
    assert changed["full"] > changed["plain"]
    assert changed["effect"]
    assert changed["plain"]
    assert json.loads((out / "run.json").read_text())["recommended"] == "effect"
    # Once finished, the same command gathers again; another model of it may be asked for.
    table = (out / "conditions.csv").read_text()
    options[options.index("--save") + 1] = "full"
    assert called(capsys, tiny_folder, text, *options)[0] == 0
    assert (out / "conditions.csv").read_text() == table
    assert json.loads((out / "model" / "debias.json").read_text())["condition"] == "full"
    assert not list(out.glob("model-*"))


def test_without_twins_it_is_log_odds_that_are_trained_measured_and_named(
    tiny_folder, text, tmp_path, capsys
):
    out = tmp_path / "run"
    options = ["--twins", "none", *SMALL]
    status, printed, error = called(
        capsys, tiny_folder, text, *options, "--verbose", "--out", str(out)
    )
    assert status == 0, error
    card = (out / "model" / "README.md").read_text(encoding="utf-8")
    assert "changed the log-odds per token" in " ".join(printed.split())
    assert "| log-odds, nats per token |" in card
    for said in (printed.lower().replace(str(out), ""), card.partition("## Audit")[0].lower()):
        assert "beta" not in said
    assert "with their twins" not in card


def test_a_file_of_twins_may_cover_categories_that_do_not_train(tmp_path):
    whole = load_triples("starter")
    save_twins(tmp_path / "twins.jsonl", make_twins(whole))
    read, twins, left_out = training_texts(
        read_triples("starter"), "gender", limit=2, twins=str(tmp_path / "twins.jsonl"), controls=()
    )
    assert read == load_triples("starter", category="gender", limit=2)
    assert left_out == 0
    assert [t.group for t, _ in twins.pairs] == [t.group for t in read]
