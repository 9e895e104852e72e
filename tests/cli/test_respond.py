"""``tdabias respond`` from the command line to its files and its part of the page."""

import json

import pandas as pd
import pytest

from tda_bias.responses.persons import people_of
from tdabias_cli.main import run
from tdabias_cli.respond import RespondSettings
from tests.support.responses import MEN, WOMEN, writing_model

MINE = "id,template,choices\n" + "".join(
    f"{i},Write about [PERSON] who was {word} .,{'yes|no' if i < 2 else ''}\n"
    for i, word in enumerate(["kind", "calm", "loud", "late", "strong", "and"])
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that writes by group, prompts and people."""
    base = tmp_path_factory.mktemp("respond")
    model = writing_model(by_group=True)
    model.hf_model.save_pretrained(base / "tiny")
    model.tokenizer.save_pretrained(base / "tiny")
    (base / "mine.csv").write_text(MINE)
    people = [*(("women", name) for name in WOMEN), *(("men", name) for name in MEN)]
    (base / "people.csv").write_text("group,person\n" + "".join(f"{g},{p}\n" for g, p in people))
    (base / "two.csv").write_text("group,person\nwomen,Waa\nmen,Moa\n")
    (base / "bare.csv").write_text("id,template\na,Who is there?\n")
    (base / "twice.csv").write_text("id,template\na,[PERSON] and [PERSON]\n")
    return base


def words(folder, *more):
    given = ["--prompts", str(folder / "mine.csv"), "--persons", str(folder / "people.csv")]
    few = ["--samples", "2", "--tokens", "5", "--n-permutations", "99"]
    return ["respond", "-m", str(folder / "tiny"), *given, *few, *more]


@pytest.fixture(scope="module")
def out(folder):
    assert run(words(folder, "--out", str(folder / "run"), "--quiet")) == 0
    return folder / "run"


def test_a_run_says_what_the_group_brings_and_leaves_its_files(out, capsys):
    assert run(["show", str(out)]) == 0
    brief = capsys.readouterr().out
    assert "\nWhat the model writes depends on the group (women or men).\n" in brief
    assert "response effect" in brief
    assert run(["show", str(out), "--verbose"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for said in (
        "RESULT The group (women or men) brings +", "nats per response", "Decisions (2 prompts)",
        "twins less placebos", "without echo", f"NEXT tdabias report {out}",
        "What goes together over prompts", "decision size",
    ):  # fmt: skip
        assert said in shown, said
    assert {path.name for path in out.iterdir()} >= {
        "effects.csv", "prompts.csv", "decisions.csv", "words.csv", "correlations.csv",
        "responses.parquet", "run.json",
    }  # fmt: skip
    table = pd.read_parquet(out / "responses.parquet")
    assert len(table) == 6 * 4 * 2
    assert set(table["group"]) == {"women", "men"}
    assert table["seed"].nunique() == len(table)


def test_other_programs_get_every_table(out, capsys):
    assert run(["show", str(out), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["groups"] == ["women", "men"]
    assert found["samples"] == 2
    assert [row["measure"] for row in found["effects"]][:1] == ["without echo"]
    assert len(found["prompts"]) == 6
    together = {(row["quantity"], row["other"]): row for row in found["correlations"]}
    assert together["twins", "placebos"]["prompts"] == 6
    assert together["effect", "decision size"]["spearman"] is None  # of two prompts


def test_the_page_shows_responses_closed_and_says_how_to_make_the_run_again(out, tmp_path):
    assert run(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    html = (tmp_path / "page.html").read_text()
    assert '<details class="responses"><summary>Responses (8 of 48)</summary>' in html
    assert "tdabias respond --" in html
    assert "no legal verdict" in html
    assert "2 targets: men, women" in html


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--category", "shoes"], "`category` must be one of gender, race, age, or any with"),
        (["--prompts", "BARE"], "line 2: the template has no [PERSON]"),
        (["--prompts", "TWICE", "--category", "age"], "'a' has [PERSON] twice"),
        (["--system", "Be brief."], "`system` goes with chat models"),
        (["--thinking", "on"], "`thinking` goes with chat models"),
        (["--persons", "TWO"], "has no two people of each group (women, men)"),
        (["--tokens", "125"], "takes 128; shorten it, or lower --tokens"),
        (["--samples", "0"], "`samples` must be greater than or equal to 1"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, tmp_path, capsys, more, message):
    places = {name.upper(): str(folder / f"{name}.csv") for name in ("bare", "twice", "two")}
    people = [] if "--category" in more else ["--persons", str(folder / "people.csv")]
    command = ["respond", "-m", str(folder / "tiny"), "--prompts", str(folder / "mine.csv")]
    given = [places.get(word, word) for word in more]
    assert run([*command, *people, *given, "--out", str(tmp_path / "out")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[-1]
    assert [line.startswith("Error: ") for line in lines].count(True) == 1
    assert not (tmp_path / "out").exists()


def test_a_first_look_is_of_few_prompts_and_samples_unless_told_otherwise():
    quick = RespondSettings(model="x", quick=True)
    assert (quick.limit, quick.samples) == (12, 2)
    told = RespondSettings(model="x", quick=True, samples=7)
    assert (told.limit, told.samples) == (12, 7)
    whole = RespondSettings(model="x")
    assert (whole.limit, whole.samples) == (None, 4)


@pytest.mark.parametrize(
    ("category", "groups", "kinds", "one"),
    [
        ("gender", ("female", "male"), {""}, "Mary"),
        ("race", ("White", "Black"), {"female", "male"}, "Emily"),
        ("age", ("younger", "older"), {"man", "woman"}, "an 80-year-old woman"),
    ],
)
def test_people_of_a_category_are_those_of_the_classes_of_unqover(category, groups, kinds, one):
    people = people_of(category)
    assert people.groups == groups
    assert {person.kind for person in people.persons} == kinds
    assert one in {person.name for person in people.persons}
    for group in groups:
        for kind in kinds:
            of_both = [p for p in people.persons if (p.group, p.kind) == (group, kind)]
            assert len(of_both) >= 3
