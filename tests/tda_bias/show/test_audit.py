"""What an auditor files: every outcome with its limits, and nothing that a name could break."""

import re

import pytest

from pvf.preferences import PreferencesRecord, SourceRecord, WordsRecord
from tda_bias.comparison.models import ComparisonRecord
from tda_bias.show.audit import Audited, audit_html, audit_of, facts, model_card
from tda_bias.show.text import Finding
from tda_bias.show.verdict import Outcome
from tda_bias.store.record import DataRecord, ModelRecord, RunRecord
from unqover.answers import AnswersRecord
from unqover.questions import DesignRecord

FOUND = Finding(result=["beta 0.6 (0.3 to 0.9)."], control=["Twins."], power=["0.7 nats."])


def record(command: str = "stereoset", source: str = "stereoset") -> RunRecord:
    return RunRecord(
        command=command,
        model=ModelRecord(name="<b>tiny</b>", weights="abc123"),
        settings={"seed": 7},
        data=DataRecord(source=source, revision="r1"),
        files={"scores.csv": {"hash": "f00"}},
    )


def test_an_audit_has_figure_limits_data_versions_hashes_seed_and_command():
    html = audit_html(
        [Audited("runs/x", record(), [("gender", FOUND)], "tdabias stereoset", "aunt")]
    )
    for said in (
        "gender", "beta 0.6 (0.3 to 0.9).", "Twins.", "0.7 nats.", "not the absence of bias",
        "CC BY-SA 4.0", "revision r1", "aunt", "abc123", "f00", "<td>7</td>", "tdabias stereoset",
        "transformers ", "MEASURE 2.11", "Annex IV (2)", "Annex IV (3)", "Annex IV (4)",
    ):  # fmt: skip
        assert said in html, said
    assert "<b>tiny" not in html


def test_nothing_is_called_compliant():
    told = str(facts()) + audit_html([Audited("x", record(), [("", FOUND)])])
    assert re.findall(r"[^.]*\bcomplian\w*", told, re.IGNORECASE) == [
        match for match in re.findall(r"[^.]*\bcomplian\w*", told) if "does not make" in match
    ]


@pytest.mark.parametrize(
    "command",
    ["heads", "confirm", "stereoset", "stereoset intrasentence", "pairs", "pvf", "unqover", "bbq",
     "respond",
     "ablate", "ablate curve", "crossref", "crossref items", "crossref published",
     "compare", "debias", "edit"],
)  # fmt: skip
def test_every_command_has_an_outcome_its_limit_and_a_place_in_the_frameworks(command):
    named = {"words": WORDS, "design": {"class": "age", "source": "own"}}
    run = RunRecord(command=command, model=ModelRecord(name="tiny"), **named)
    html = audit_html([Audited("x", run, [("", FOUND)])])
    about = facts()["commands"][command.split()[0]]
    assert set(about) == {"outcome", "not_shown", *facts()["frameworks"]}
    assert about["not_shown"].split(";")[0].split("'")[0] in html


def test_data_of_a_users_own_are_not_given_a_licence():
    html = audit_html([Audited("x", record(source="mine.jsonl"), [("", FOUND)])])
    assert "mine.jsonl" in html
    assert "not assessed here" in html


WORDS = {"x": {"name": "occupations", "source": "D.1"}, "y": {"name": "race", "source": "table 7"}}
LISTS = {name: SourceRecord(**of_list) for name, of_list in WORDS.items()}
WIKI = {"source": "data/wikitext-2-raw-v1_test.txt", "revision": "r2"}
MEASURES = {
    "stereoset": {"source": "mine.jsonl", "revision": "r1"},
    "blimp": {"source": "packaged"},
    "pvf": {"words": []},
    "perplexity": WIKI,
    "divergence": WIKI,
    "own": {"source": "slow.csv"},
}


@pytest.mark.parametrize(
    ("command", "entries", "texts", "sets"),
    [
        (
            "pvf",
            {"words": WordsRecord.model_construct(**LISTS)},
            "occupations (D.1); race (table 7)",
            {"pvf"},
        ),
        (
            "unqover",
            {"design": DesignRecord.model_construct(name="age", source="own")},
            "age (own)",
            {"unqover"},
        ),
        (
            "compare",
            {"measures": MEASURES},
            "mine.jsonl, revision r1; packaged; pvf; data/wikitext-2-raw-v1_test.txt, revision r2; "
            "slow.csv",
            {"mine.jsonl", "blimp", "pvf", "wikitext", "slow.csv"},
        ),
        ("ablate curve", {"settings": {"text": "wikitext2"}}, "wikitext2", {"wikitext"}),
        ("debias", {"settings": {"text": "self", "pairs": "none"}}, "not recorded", set()),
    ],
)
def test_every_command_names_the_data_sets_it_read(command, entries, texts, sets):
    kind = {"pvf": PreferencesRecord, "unqover": AnswersRecord, "compare": ComparisonRecord}
    about = {"settings": {}, "data": None, **entries}
    reads = kind.get(command, RunRecord).model_construct(**about).reads()
    run = RunRecord(command=command, model=ModelRecord(name="tiny"), sources=reads)
    html = audit_html([Audited("x", run, [("", FOUND)])])
    assert f"<td>{texts}</td>" in html
    _, _, listed = html.partition("<h3>Data sets</h3>")
    listed, _, _ = listed.partition("</table>")
    assert set(re.findall(r"<tr><td>([^<]*)</td>", listed)) == sets
    assert ("not assessed here" in listed) == bool(sets - set(facts()["data_sets"]))


def test_a_comparison_is_of_two_models():
    run = RunRecord(
        command="compare", model=ModelRecord(name="tiny"), after=ModelRecord(name="tiny-edited")
    )
    assert "<td>tiny; tiny-edited</td>" in audit_html([Audited("x", run, [("", FOUND)])])


def test_a_card_names_its_base_model_and_holds_the_audit():
    card = model_card("base", "base, changed", [Audited("x", record("edit"), [("", FOUND)])])
    assert card.startswith("---\nbase_model: base\n")
    assert "# base, changed" in card
    assert "tdabias compare" in card


def test_the_audit_on_paper_has_verdicts_caveats_licences_and_commands_in_short():
    one = Outcome(
        "says", "Gender <b>", "beta", 0.5, 0.1, 0.9, "nats", p=0.01, clusters=8, effect=0.3
    )
    run = Audited(
        "x", record(), [("gender", FOUND)], "tdabias stereoset", id="abc9", outcomes=[one]
    )
    paper = audit_of(
        [run, Audited("y", record("confirm"), [("", FOUND)])], ["Once.", "Once."]
    ).paper
    for said in (
        "Gender &lt;b&gt;", "0.50 nats (0.10 to 0.90)", "small, clear", "CC BY-SA 4.0",
        "tdabias stereoset", "abc9", "does not make a system compliant", FOUND.result[0],
        FOUND.power[0], "not the absence of bias",
    ):  # fmt: skip
        assert said in paper, said
    assert paper.count("Once.") == 1


def test_what_ships_is_known_by_the_name_of_its_set():
    shipped = record("pairs", "packaged").model_copy(update={"settings": {"set": "winobias"}})
    html = audit_html([Audited("x", shipped, [("", FOUND)])])
    assert "<td>winobias</td>" in html
    assert "not assessed here" not in html


def test_an_outcome_has_its_own_smallest_effect_and_not_those_of_the_run():
    found = Finding(result=["Two."], power=["All of them: 0.7 nats, 0.9 nats."])
    one, other = (
        Outcome("says", name, "beta", p=0.5, clusters=8, category=name, power=power)
        for name, power in (("gender", "0.7 nats, four times out of five"), ("race", ""))
    )
    run = Audited("x", record(), [("", found)], outcomes=[one, other])
    paper = audit_of([run]).paper
    assert "<td>0.7 nats, four times out of five</td>" in paper
    assert "<td>not known</td>" in paper
    assert "All of them" not in paper
