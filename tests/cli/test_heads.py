"""``tdabias heads`` as a person runs it: what it prints, writes, and refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tda_bias import HeadBias
from tdabias_cli.main import run

CATEGORY = ["--category", "gender"]


@pytest.fixture
def arguments(tiny_folder, tmp_path) -> list[str]:
    return [
        *("heads", "--model", str(tiny_folder), *CATEGORY, "--data", "starter"),
        *("--limit", "3", "--n-resamples", "99", "--device", "cpu", "--out", str(tmp_path / "out")),
    ]


def refused(capsys, arguments: list[str]) -> str:
    """The one line of an error that ends with exit code 2."""
    assert run(arguments) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1, captured.err
    assert captured.out == ""
    assert lines[0].startswith("Error: ")
    return lines[0]


# -- a run --


def test_a_run_prints_the_ranking_and_its_controls_and_writes_the_files(
    arguments, tmp_path, capsys
):
    assert run([*arguments, "--top", "3", "--verbose"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    labels = [printed.index(label) for label in ("RESULT", "CONTROL", "POWER", "NEXT", "┃ head")]
    assert labels == sorted(labels)
    result = HeadBias.load(tmp_path / "out")
    for row in result.top(3).itertuples():
        assert f"L{row.layer}H{row.head}" in printed
    controls = result.controls()
    assert f"{controls['hot_spots_p05']} heads with p < .05; 0.4 expected by chance" in printed
    assert "The starter triples demonstrate the tool; they do not measure a model." in printed
    assert ("found to treat gender differently (8 heads" in printed) == (
        not len(result.survivors())
    )
    assert "4 of 4 groups have fewer than 6 triples: no test within them can reach" in printed
    assert "Files: " in printed
    record = result.record
    assert record.settings["limit"] == 3
    assert record.data.source == "starter"
    assert record.data.revision.startswith("blake2b-")


def test_json_is_printed_for_other_programs(arguments, capsys):
    assert run([*arguments, "--format", "json", "--top", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    heads = found["categories"]["gender"]["heads"]
    assert len(heads) == 2
    assert {"layer", "head", "z", "p", "p_max", "q", "unstable"} == set(heads[0])
    assert found["categories"]["gender"]["controls"]["heads"] == 8


def test_csv_is_the_ranking_and_quiet_says_nothing(arguments, capsys):
    import io

    assert run([*arguments, "--format", "csv", "--top", "2", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    table = pd.read_csv(io.StringIO(captured.out))
    assert list(table.columns[:4]) == ["category", "layer", "head", "z"]
    assert list(table["category"]) == ["gender", "gender"]
    assert run([*arguments, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_second_run_takes_the_finished_groups(arguments, tmp_path, monkeypatch):
    assert run(arguments) == 0
    first = (tmp_path / "out" / "heads.csv").read_text()
    monkeypatch.setattr("tda_bias.heads.head_bias.computed_group", None)
    assert run(arguments) == 0
    assert (tmp_path / "out" / "heads.csv").read_text() == first


def test_a_changed_setting_is_refused_until_told_to_write_over(arguments, capsys):
    assert run(arguments) == 0
    capsys.readouterr()
    changed = [*arguments, "--distance", "exact"]
    assert run(changed) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "distance was 'steps', now 'exact'" in error
    assert "--overwrite" in error
    assert run([*changed, "--no-resume"]) == 2  # what is finished is not lost by accident
    assert run([*changed, "--overwrite"]) == 0


def test_all_categories_are_run_at_once(tiny_folder, tmp_path, capsys):
    options = ["--category", "all", "--data", "starter", "-L", "2", "--n-resamples", "99"]
    out = ["-o", str(tmp_path / "out"), "--format", "json"]
    assert run(["heads", "--model", str(tiny_folder), *options, *out]) == 0
    found = json.loads(capsys.readouterr().out)["categories"]
    assert list(found) == ["gender", "profession", "race", "religion"]


def test_the_default_folder_is_named_after_model_and_category(
    tiny_folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    options = [*CATEGORY, "--data", "starter", "-L", "2", "--n-resamples", "99"]
    assert run(["heads", "--model", str(tiny_folder), *options]) == 0
    assert len(list(tmp_path.glob("runs/tiny-gpt2-??????/gender/run.json"))) == 1
    other = tmp_path / "elsewhere" / "tiny-gpt2"
    shutil.copytree(tiny_folder, other)
    assert run(["heads", "--model", str(other), *options]) == 0
    assert len(list(tmp_path.glob("runs/tiny-gpt2-??????/gender/run.json"))) == 2


def test_a_dry_run_counts_the_texts_of_every_group_and_leaves_nothing(arguments, tmp_path, capsys):
    assert run([*arguments, "--dry-run"]) == 0
    assert "Nothing was computed or saved" in " ".join(capsys.readouterr().out.split())
    assert run([*arguments, "--dry-run", "--format", "json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "out").exists()
    assert run(arguments) == 0
    record = HeadBias.load(tmp_path / "out").record
    assert counts["in_all"]["triples"] == record.texts.triples_used
    assert counts["in_all"]["twins"] == record.twins["twins"]
    assert counts["in_all"]["texts"] == 3 * record.texts.triples_used + 2 * record.twins["twins"]
    assert [(row["group"], row["triples"]) for row in counts["groups"]] == [
        (group.group, group.triples) for group in record.groups
    ]
    assert sum(row["tokens"] for row in counts["groups"]) == counts["in_all"]["tokens"]


# -- settings --


def test_flags_win_over_the_file_and_the_file_over_defaults(arguments, tmp_path):
    config = tmp_path / "settings.yaml"
    config.write_text("top: 2\nlimit: 2\npvalue: label\nrank_by: statistic\n")
    assert run([*arguments, "--config", str(config), "--rank-by", "metric"]) == 0
    settings = HeadBias.load(tmp_path / "out").record.settings
    assert settings["top"] == 2
    assert settings["pvalue"] == "label"
    assert settings["rank_by"] == "metric"
    assert settings["limit"] == 3


@pytest.mark.parametrize("name", ["paper_gpt2", "quick"])
def test_the_configurations_of_the_project_are_valid(name):
    from tdabias_cli.heads import HeadsSettings
    from tdabias_cli.options import merged

    path = Path("configs") / f"{name}.yaml"
    settings = merged(HeadsSettings, {"model": "m", "category": "gender"}, config=path)
    assert settings.model == "m"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pvalues: label", "unknown setting `pvalues`; allowed are"),
        ("pvalue: none", "`pvalue` must be one of paired, label, paper; got 'none'"),
        ("- a list", "must hold `setting: value` lines"),
        ("top: [", "is not YAML (line"),
        ("seed: -1", "`seed` must be greater than or equal to 0; got -1"),
    ],
)
def test_a_wrong_configuration_file_is_refused(arguments, tmp_path, capsys, content, message):
    config = tmp_path / "settings.yaml"
    config.write_text(content)
    error = refused(capsys, [*arguments, "--config", str(config)])
    assert message in error


# -- unusable input --


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            ["--category", "sex"],
            "`category` must be one of gender, profession, race, religion, all",
        ),
        (["--group", "boyy"], "did you mean boy"),
        (["--pvalue", "none"], "`pvalue` must be one of paired, label, paper; got 'none'"),
        (["--distance", "far"], "`distance` must be one of steps, exact; got 'far'"),
        (["--batch-size", "0"], "`batch_size` must be greater than or equal to 1; got 0"),
        (["--batch-size", "many"], "integer"),
        (["--n-resamples", "5"], "`n_resamples` must be greater than or equal to 99"),
        (["--data", "absent.jsonl"], "`data` must be stereoset, starter or a readable file"),
        (["--limit", "1"], "has 1 usable triple"),
        (["--colour", "red"], "No such option"),
        (["--config", "absent.yaml"], "`config` absent.yaml: No such file"),
    ],
)
def test_unusable_input_is_one_line_and_exit_code_2(arguments, capsys, extra, message):
    assert run([*arguments, *extra]) == 2
    captured = capsys.readouterr()
    error = captured.err.strip().splitlines()[-1]
    assert error.startswith("Error: ")
    assert message in error
    assert "Traceback" not in captured.err


def test_a_model_and_a_category_must_be_given(capsys):
    assert "`model` is missing; give --model" in refused(capsys, ["heads", *CATEGORY])
    assert "`category` is missing" in refused(capsys, ["heads", "--model", "gpt2"])


def test_an_unwritable_folder_is_refused_before_the_model_is_loaded(
    arguments, tmp_path, capsys, monkeypatch
):
    (tmp_path / "out").write_text("a file")
    monkeypatch.setattr("tda_bias.models.load.load_model", None)
    assert "cannot write" in refused(capsys, arguments)


def test_an_architecture_that_cannot_be_hooked_is_refused(tokenizer, tmp_path, capsys):
    from tests.support.models import tiny_hf_model

    tiny_hf_model("mamba", len(tokenizer)).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    capsys.readouterr()
    options = ["heads", "--model", str(tmp_path / "m"), *CATEGORY, "--data", "starter"]
    assert run([*options, "--out", str(tmp_path / "out")]) == 2
    assert "MambaForCausalLM, which returns no attention patterns" in capsys.readouterr().err


def test_a_text_longer_than_the_context_is_refused(tokenizer, tmp_path, capsys):
    from tests.support.models import tiny_hf_model

    tiny_hf_model("gpt2", len(tokenizer), n_positions=9).save_pretrained(tmp_path / "m")
    tokenizer.save_pretrained(tmp_path / "m")
    options = ["heads", "--model", str(tmp_path / "m"), *CATEGORY, "--data", "starter"]
    assert run([*options, "--out", str(tmp_path / "out")]) == 2
    assert "tokens, the model takes 9; nothing is truncated" in capsys.readouterr().err


# -- stopping --


def test_ctrl_c_ends_with_130_and_keeps_the_finished_groups(
    arguments, tmp_path, capsys, monkeypatch
):
    import tda_bias.heads.head_bias

    whole = tda_bias.heads.head_bias.computed_group
    calls = []

    def interrupted(*positional, **named):
        calls.append(positional[0])
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*positional, **named)

    monkeypatch.setattr(tda_bias.heads.head_bias, "computed_group", interrupted)
    assert run(arguments) == 130
    assert "Interrupted. Finished groups are kept" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "groups").glob("*.npz"))) == 2
    monkeypatch.setattr(tda_bias.heads.head_bias, "computed_group", whole)
    assert run(arguments) == 0


def command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-c", "from tdabias_cli.main import main; main()", *arguments]


def test_a_killed_process_leaves_whole_files_and_the_next_one_goes_on(arguments, tmp_path):
    """SIGKILL at the moment the second group is finished."""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    groups = tmp_path / "out" / "groups"
    # One text per pass and all resamples: slow enough to be hit while it works.
    slow = [*arguments, "--batch-size", "1", "--share-prefix", "never", "--limit", "12"]
    process = subprocess.Popen(
        command(slow), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while len(list(groups.glob("[!.]*.npz"))) < 2 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in groups.glob("[!.]*.npz")}
    assert len(kept) >= 2
    assert not (tmp_path / "out" / "run.json").exists()
    subprocess.run(command(slow), env=environment, check=True, capture_output=True)
    again = {path.name: path.stat().st_mtime_ns for path in groups.glob("*.npz")}
    assert kept.items() <= again.items()
    assert not [path for path in (tmp_path / "out").rglob(".unfinished*")]
    assert len(pd.read_parquet(tmp_path / "out" / "heads.parquet")) == 4 * 2 * 2 * 4


# -- help --


def test_the_version_is_printed(capsys):
    from importlib.metadata import version

    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"tdabias {version('tdabias')}"


# -- twins and random weights --


def test_twins_are_on_where_they_can_be_made_and_said(arguments, tmp_path, capsys):
    assert run(arguments) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "between stereotype and anti-stereotype texts is shared with" in printed
    result = HeadBias.load(tmp_path / "out")
    assert result.record.twins["twins"] == 12
    assert "p_location_twin" in result.table
    assert "triple minus twin" in printed


@pytest.mark.parametrize("survive", [0, 1])
def test_a_shift_that_survives_with_twins_is_no_empty_result(arguments, tmp_path, survive):
    from tdabias_cli.heads import finding

    assert run(arguments) == 0
    result = HeadBias.load(tmp_path / "out")
    category = result.category.copy()
    for name in ("relative_twin", "location_twin"):
        category[f"p_max_{name}"] = category[f"q_{name}"] = 1.0
    chosen = (category["layer"] == 1) & (category["head"] == 2)
    category.loc[chosen, "p_max_location_twin"] = 0.01 if survive else 0.06
    (of_run,) = result.record.controls
    shift = of_run.twins.location.model_copy(update={"p_max05": survive})
    of_twins = of_run.twins.model_copy(update={"location": shift})
    nothing_within = {"groups_p_max05": 0, "group_tests_q05": 0, "twins": of_twins}
    changed = result.with_record(controls=(of_run.model_copy(update=nothing_within),))
    found = finding(replace(changed, category=category), tmp_path / "out", "gender")
    lines = " ".join(found.result)
    assert ("triple minus twin: these survive correction: L1H2 (" in lines) == bool(survive)
    assert "found to treat gender differently" in lines  # by the ranking's own test none does


def test_without_twins_nothing_of_them_is_there(arguments, tmp_path, capsys):
    assert run([*arguments, "--twins", "none"]) == 0
    assert "No twins: wording and length are in every difference" in capsys.readouterr().out
    result = HeadBias.load(tmp_path / "out")
    assert result.record.twins is None
    assert "p_location_twin" not in result.table


def test_random_weights_stand_beside_the_model(arguments, tmp_path, capsys):
    assert run([*arguments, "--untrained"]) == 0
    assert "Untrained control:" in " ".join(capsys.readouterr().out.split())
    random = HeadBias.load(tmp_path / "out" / "untrained")
    trained = HeadBias.load(tmp_path / "out")
    assert random.record.model.weights != trained.record.model.weights
    assert random.record.texts.hash == trained.record.texts.hash


def test_data_of_unknown_targets_run_without_twins_and_say_so(tiny_folder, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    lines = [
        {
            "target": "plumbus", "bias_type": "profession", "context": f"The plumbus {word} here.",
            "stereotype": "It hums all day.", "anti-stereotype": "It sings all night.",
            "unrelated": "Rain fell on the hills.",
        }
        for word in ("stood", "lay", "sat")
    ]  # fmt: skip
    data.write_text("\n".join(map(json.dumps, lines)))
    options = ["--category", "profession", "--data", str(data), "--n-resamples", "99"]
    out = ["--out", str(tmp_path / "out")]
    assert run(["heads", "--model", str(tiny_folder), *options, *out]) == 0
    assert (
        "Without twins: no twins: the target is not known (3): plumbus" in capsys.readouterr().err
    )
