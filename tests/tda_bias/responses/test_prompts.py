"""Prompts and the people they are about: bad input in one line, and draws spread over all."""

import numpy as np
import pytest

from tda_bias import InputError
from tda_bias.responses.persons import (
    Person,
    PersonSet,
    drawn,
    load_persons,
    refuse_descriptions_twice,
)
from tda_bias.responses.prompts import SLOT, Prompt, load_prompts
from tda_bias.store.record import DataRecord

RECORD = DataRecord(source="people.csv")


def people(*persons):
    return PersonSet(tuple(persons), RECORD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,text\na,b\n", "has no column `template`"),
        ("id,template\na,Who is there?\n", "line 2: the template has no [PERSON]"),
        ("id,template\na,[PERSON]\na,Is [PERSON] in?\n", "line 3: the id 'a' stands in"),
        ("id,template\n ,[PERSON]\n", "line 2: `id` is empty"),
        ("id,template,choices\na,[PERSON],yes\n", "must be two different answers"),
        ("id,template,choices\na,[PERSON],yes|Yes\n", "must be two different answers"),
        ("id,template\n", "holds no prompt"),
        ("", "`prompts`"),
    ],
)
def test_a_bad_file_of_prompts_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        load_prompts(path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group,person\na,Ann\n", "must hold two groups; it holds a"),
        ("group,person\na,Ann\nb,Bo\nc,Cy\n", "must hold two groups; it holds a, b, c"),
        ("group,person\na,Ann\nb,Ann\n", "holds 'Ann' twice"),
        ("group,person\n,Ann\n", "line 2: `group` is empty"),
        ("group,name\na,Ann\n", "has no column `person`"),
    ],
)
def test_a_bad_file_of_people_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "people.csv"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        load_persons(path)
    assert message in str(refused.value)


def test_what_ships_is_forty_prompts_of_five_kinds_with_one_person_each():
    prompts = load_prompts().prompts
    kinds = [prompt.kind for prompt in prompts]
    assert len(prompts) == 40
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "letter": 8, "story": 8, "persona": 7, "advice": 7, "decision": 10
    }  # fmt: skip
    for prompt in prompts:
        assert prompt.template.count(SLOT) == 1
        assert (prompt.choices == ("yes", "no")) == (prompt.kind == "decision")
        # A description keeps its small letter: no prompt begins a sentence with the person.
        assert "a 30-year-old man" in prompt.about("a 30-year-old man")


def test_a_limit_takes_prompts_of_each_kind_in_turn():
    few = load_prompts(limit=12).prompts
    assert [prompt.kind for prompt in few] == (
        ["letter"] * 3 + ["story"] * 3 + ["persona"] * 2 + ["advice"] * 2 + ["decision"] * 2
    )
    assert len(load_prompts(limit=99).prompts) == 40


def test_a_described_person_is_named_once():
    prompts = [Prompt("a", "own", f"{SLOT} waits."), Prompt("b", "own", f"{SLOT} and {SLOT}")]
    named = people(Person("Ann", "a"), Person("Bo", "b"))
    refuse_descriptions_twice(prompts, named)
    described = people(Person("a young man", "a"), Person("an old man", "b"))
    refuse_descriptions_twice(prompts[:1], described)
    with pytest.raises(InputError, match="'b' has .PERSON. twice"):
        refuse_descriptions_twice(prompts, described)


def test_four_people_are_of_two_groups_of_one_kind_and_length_and_all_are_used():
    rng = np.random.default_rng(0)
    persons = people(
        *(Person(f"{kind}{group}{i}", group, kind) for kind in "xy" for group in "ab"
          for i in range(6))
    )  # fmt: skip
    length = np.array([int(person.name[-1]) % 2 for person in persons.persons])
    prompts = [Prompt(str(i), "own", SLOT) for i in range(24)]
    four = drawn(persons, prompts, np.tile(length, (24, 1)), rng)
    for row in four:
        found = [persons.persons[i] for i in row]
        assert [person.group for person in found] == ["a", "a", "b", "b"]
        assert len({person.kind for person in found}) == 1
        assert len({length[i] for i in row}) == 1
        assert len(set(row)) == 4
    uses = np.bincount(four.ravel(), minlength=24)
    assert uses.min() >= 1
    again = drawn(persons, prompts, np.tile(length, (24, 1)), np.random.default_rng(0))
    assert again.tolist() == four.tolist()


def test_where_no_four_people_have_as_many_tokens_the_prompt_is_named():
    persons = people(*(Person(f"{group}{i}", group) for group in "ab" for i in range(2)))
    tokens = np.array([[3, 3, 3, 3], [3, 3, 3, 4]])
    prompts = [Prompt("short", "own", SLOT), Prompt("long", "own", SLOT)]
    with pytest.raises(InputError, match="'long' has no two people of each group .a, b. with as"):
        drawn(persons, prompts, tokens, np.random.default_rng(0))
