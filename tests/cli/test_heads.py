"""``tdabias heads`` as a person runs it: what it prints, writes, and refuses."""

import io
import json
import re
from contextlib import redirect_stdout
from dataclasses import replace
from shutil import copytree

import pytest
from scipy.stats import spearmanr

from tda_bias import HeadBias
from tda_bias.config import HeadBiasConfig
from tda_bias.heads.outcomes import heads_outcomes
from tda_bias.heads.shown import finding
from tda_bias.show.text import counted
from tda_bias.types import InputError
from tdabias_cli.heads import HeadsSettings
from tdabias_cli.main import run
from tests.support.models import tiny_hf_model

CATEGORY = ["--category", "gender"]


@pytest.fixture
def arguments(tiny_folder, tmp_path) -> list[str]:
    return command(tiny_folder, tmp_path / "out")


def command(model, out) -> list[str]:
    texts = f"heads --model {model} --category gender --data starter --limit 3"
    return f"{texts} --n-permutations 99 --device cpu --out {out}".split()


@pytest.fixture(scope="module")
def ran(tiny_folder, tmp_path_factory):
    """Folder of a run with both controls, and what it printed; nobody changes it."""
    out = tmp_path_factory.mktemp("ran") / "out"
    more = ["--untrained", "--placebo", "role", "--top", "3", "--verbose"]
    with redirect_stdout(io.StringIO()) as printed:
        assert run([*command(tiny_folder, out), *more]) == 0
    return out, " ".join(printed.getvalue().split())


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


def test_a_run_prints_the_ranking_and_its_controls_and_writes_the_files(ran):
    out, printed = ran
    labels = [printed.index(label) for label in ("RESULT", "CONTROL", "POWER", "NEXT", "┃ head")]
    assert labels == sorted(labels)
    result = HeadBias.load(out)
    for row in result.top(3).itertuples():
        assert f"L{row.layer}H{row.head}" in printed
    controls = result.controls()
    found = counted(controls["hot_spots_p05"], "head")
    assert f"{found} with p < .05; 0.4 by chance" in printed
    assert "The starter triples demonstrate the tool; they do not measure a model." in printed
    assert f"{result.said().removesuffix('.')} (8 heads of " in printed
    assert "4 of 4 groups have fewer than 6 triples: no test within them can reach" in printed
    assert "Files: " in printed
    record = result.record
    assert record.settings["limit"] == 3
    assert record.twins["twins"] == 12
    assert "p_location_twin" in result.table
    for said in ("texts is shared with the same texts about another target", "triple minus twin"):
        assert said in printed
    assert record.data.source == "starter"
    assert record.data.revision.startswith("blake2b-")


def test_all_categories_are_run_at_once_and_json_is_printed_for_other_programs(
    tiny_folder, tmp_path, capsys
):
    options = ["--category", "all", "--data", "starter", "-L", "2", "--n-permutations", "99"]
    out = ["-o", str(tmp_path / "out"), "--format", "json", "--top", "2"]
    assert run(["heads", "--model", str(tiny_folder), *options, *out]) == 0
    found = json.loads(capsys.readouterr().out)["categories"]
    assert list(found) == ["gender", "profession", "race", "religion"]
    heads = found["gender"]["heads"]
    assert len(heads) == 2
    assert {"layer", "head", "z", "p", "p_max", "q", "unstable"} == set(heads[0])
    assert found["gender"]["controls"]["heads"] == 8


def test_the_default_folder_is_named_after_model_and_category(tmp_path):
    folders = []
    for place in ("here", "elsewhere"):
        model = tmp_path / place / "tiny-gpt2"
        model.mkdir(parents=True)
        folders.append(HeadsSettings(model=str(model), category="gender").folder)
    assert all(re.fullmatch(r"runs/tiny-gpt2-.{6}/gender", str(folder)) for folder in folders)
    assert folders[0] != folders[1]


def test_a_dry_run_counts_the_texts_of_every_group_and_leaves_nothing(
    arguments, ran, tmp_path, capsys
):
    assert run([*arguments, "--dry-run", "--format", "json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert not (tmp_path / "out").exists()
    record = HeadBias.load(ran[0]).record
    assert counts["in_all"]["triples"] == record.texts.triples_used
    assert counts["in_all"]["twins"] == record.twins["twins"]
    assert counts["in_all"]["texts"] == 3 * record.texts.triples_used + 2 * record.twins["twins"]
    assert [(row["group"], row["triples"]) for row in counts["groups"]] == [
        (group.group, group.triples) for group in record.groups
    ]
    assert sum(row["tokens"] for row in counts["groups"]) == counts["in_all"]["tokens"]


@pytest.mark.parametrize("kind", ["deberta_v2", "prophetnet"])
def test_a_dry_run_takes_what_transformerlens_does_not_know(kind, tokenizer, tmp_path, capsys):
    tiny_hf_model(kind, len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    given = [*CATEGORY, "--data", "starter", "-L", "2", "--out", str(tmp_path / "out")]
    assert run(["heads", "--model", str(tmp_path / "model"), *given, "--dry-run"]) == 0
    assert "Nothing was computed or saved" in " ".join(capsys.readouterr().out.split())


# -- unusable input --


def test_an_unwritable_folder_is_refused_before_the_model_is_loaded(
    arguments, tmp_path, capsys, monkeypatch
):
    (tmp_path / "out").write_text("a file")
    monkeypatch.setattr("tda_bias.models.load.load_model", None)
    assert "cannot write" in refused(capsys, arguments)


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
    assert "Interrupted. 2 finished parts are kept in" in capsys.readouterr().err
    assert len(list((tmp_path / "out" / "groups").glob("*.npz"))) == 2
    monkeypatch.setattr(tda_bias.heads.head_bias, "computed_group", whole)
    assert run(arguments) == 0


# -- twins and random weights --


_NO_HEAD = "No head is found to treat gender differently (dispersion test"


@pytest.mark.parametrize(
    ("p_max", "q", "survive", "headline"),
    [
        (0.06, 0.06, 0, f"{_NO_HEAD}, location test)."),
        (0.06, 0.03, 1, f"{_NO_HEAD}); 1 head survives the location test, not after "
         "correction for two tests."),
        (0.03, 0.06, 1, f"{_NO_HEAD}); 1 head survives the location test, not after "
         "correction for two tests."),
        (0.01, 0.06, 1, "1 head is found to treat gender differently by the location test, none "
         "by the dispersion test."),
    ],
)  # fmt: skip
def test_what_survives_by_location_is_counted_alike_in_every_line(ran, p_max, q, survive, headline):
    """By family-wise p or q, as ``survivors`` has it; found is a head by twice the first."""
    out, _ = ran
    result = HeadBias.load(out)
    category = result.category.copy()
    for name in ("relative_twin", "location_twin"):
        category[f"p_max_{name}"] = category[f"q_{name}"] = 1.0
    chosen = (category["layer"] == 1) & (category["head"] == 2)
    category.loc[chosen, ["p_max_location_twin", "q_location_twin"]] = p_max, q
    changed = replace(result, category=category)
    assert len(changed.survivors(by="location")) == survive
    assert changed.said() == headline
    found = finding(changed, out, "gender")
    assert ("L1H2 (" in " ".join(found.result)) == bool(survive)
    n_survive = "1 survives" if survive else "0 survive"
    assert f"with twins ({n_survive};" in " ".join(found.control)
    [line] = [line for line in found.brief.lines if line.label == "location test"]
    assert (line.value, line.rest.split()[0]) == (str(survive), "head" if survive else "heads")
    [outcome] = heads_outcomes(changed)
    of_both = ", not for two tests" if survive and changed.found().empty else ""
    assert f"location test: {n_survive}{of_both}" in outcome.lines
    # Of two tests the second found: its p counts for both.
    assert outcome.p == pytest.approx(0.02 if p_max == 0.01 else 1.0)


def test_without_twins_nothing_of_them_is_there(arguments, tmp_path, capsys):
    assert run([*arguments, "--twins", "none"]) == 0
    assert "not taken out: there are no twins" in capsys.readouterr().out
    result = HeadBias.load(tmp_path / "out")
    assert result.record.twins is None
    assert "p_location_twin" not in result.table


def test_random_weights_stand_beside_the_model(ran):
    out, printed = ran
    assert "Untrained control:" in printed
    random, trained = HeadBias.load(out / "untrained"), HeadBias.load(out)
    assert random.record.model.weights != trained.record.model.weights
    assert random.record.texts.hash == trained.record.texts.hash


def test_placebo_twins_stand_beside_twins(ran, capsys):
    out, printed = ran
    assert "Placebo twins (role;" in printed
    assert run(["show", str(out), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["categories"]["gender"]["placebos"]
    (contrast,) = found.values()
    own, other = HeadBias.load(out), HeadBias.load(out / "placebo-role")
    assert other.record.twins["placebo"] == "role"
    assert own.record.twins["hash"] != other.record.twins["hash"]
    where = ["group", "layer", "head", "dim"]
    p = [each.table.set_index(where)["p_location_twin"].dropna() for each in (own, other)]
    both = p[0].index.intersection(p[1].index)
    assert contrast["tests"] == len(both)
    assert contrast["groups"] == other.table["group"].nunique()
    counts = [contrast[f"{name}_p05"] for name in ("twin", "placebo")]
    assert counts == [sum(each[place] < 0.05 for place in both) for each in p]
    assert contrast["both_p05"] == sum(max(p[0][place], p[1][place]) < 0.05 for place in both)
    values = [
        [each.table[(each.table["layer"] == a) & (each.table["head"] == b)]["location_twin"].mean()
         for a, b in own.table[["layer", "head"]].drop_duplicates().to_numpy()]
        for each in (own, other)
    ]  # fmt: skip
    assert contrast["map_correlation"] == pytest.approx(spearmanr(*values).statistic)


@pytest.mark.parametrize(
    ("changes", "there"),
    [
        ({}, True),
        ({"batch_size": 2}, True),
        ({"rank_by": "location"}, False),
        ({"twins": "none"}, False),
        ({"limit": 2}, False),
    ],
)
def test_controls_of_other_settings_are_not_shown_as_those_of_the_run(ran, changes, there):
    out, _ = ran
    result = HeadBias.load(out)
    config = {name: changes[name] for name in changes if name in HeadBiasConfig.model_fields}
    result = result.with_record(
        settings={**result.record.settings, **changes},
        config=result.record.config.model_copy(update=config),
    )
    lines = " ".join(finding(result, out, "gender").control)
    for said in ("Untrained control:", "Placebo twins (role;"):
        assert (said in lines) == there


def test_a_control_of_an_earlier_version_does_not_end_a_run_and_a_damaged_one_does(ran, tmp_path):
    out = copytree(ran[0], tmp_path / "out")
    (out / "untrained" / "run.json").write_text('{"version": 1}')
    result = HeadBias.load(out)
    assert "Untrained control:" not in " ".join(finding(result, out, "gender").control)
    (out / "placebo-role" / "heads.parquet").unlink()
    with pytest.raises(InputError, match=r"heads\.parquet"):
        finding(result, out, "gender")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--twins", "none"], "`placebo` is compared with twins, and this run has none"),
        (["--category", "race"], "`placebo` role: no target has two; no placebo is known"),
    ],
)
def test_a_placebo_without_twins_or_words_is_refused(arguments, tmp_path, capsys, more, message):
    assert run([*arguments, "--placebo", "role", *more]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "run.json").exists()


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
    options = ["--category", "profession", "--data", str(data), "--n-permutations", "99"]
    out = ["--out", str(tmp_path / "out")]
    assert run(["heads", "--model", str(tiny_folder), *options, *out]) == 0
    assert (
        "Without twins: no twins: the target is not known (3): plumbus" in capsys.readouterr().err
    )


def test_the_next_command_is_about_the_same_texts(tiny_folder, tmp_path, capsys):
    of = ["--data", "starter", "--group", "girl", "--group", "nurse", "--limit", "3"]
    command = ["heads", "--model", str(tiny_folder), "--category", "all", *of]
    assert run([*command, "--n-permutations", "99", "--out", str(tmp_path / "out")]) == 0
    next_ = [line for line in capsys.readouterr().out.splitlines() if "tdabias stereoset" in line]
    ends = [line.partition(" --category ")[2] for line in next_]
    # Of each category its own groups: others are refused.
    assert ends == [
        "gender --data starter --group girl --limit 3",
        "profession --data starter --group nurse --limit 3",
    ]
