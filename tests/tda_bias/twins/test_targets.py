"""Targets by kind, and another target in a triple: forms, articles, what fits, who is drawn."""

from collections import Counter

import numpy as np
import pytest

from tda_bias.triples import load_triples
from tda_bias.twins.targets import (
    Target,
    drawn,
    fitting,
    load_kinds,
    places,
    pool,
    shipped_kinds,
    with_target,
)
from tda_bias.types import InputError, Triple

KINDS = shipped_kinds()


def target(name: str) -> Target:
    return KINDS[name.casefold()]


def triple(context: str, group: str = "x", stereotype: str = "They sing.") -> Triple:
    return Triple(group, "race", context, stereotype, "They box.", "Iron rusts.", "file line 1")


def replaced(context: str, own: str, other: str) -> str:
    return with_target(triple(context), target(own), target(other)).context


# -- bad input --


def kind_of(n: int) -> dict[str, Target]:
    names = [f"t{i}" for i in range(n)]
    return {n: Target(n, "k", {"noun": n}, {n: frozenset({"noun"})}) for n in names}


def test_targets_of_the_data_are_drawn_where_they_are_enough():
    kinds = kind_of(6)
    present = {"t0", "t2", "t4"}
    assert [t.name for t in pool(kinds, "k", present, 2)] == ["t0", "t2", "t4"]
    assert [t.name for t in pool(kinds, "k", present, 3)] == [f"t{i}" for i in range(6)]


# -- forms --


# Own target > other target | a context | the twin's.
CASES = """
Ethiopia > Sierra Leon | Many people live in Ethiopia. | Many people live in Sierra Leone.
Ethiopian > Russian | The Ethiopians sat by the fire. | The Russians sat by the fire.
Ethiopian > Russian | An Ethiopian woman serves. | A Russian woman serves.
Russian > Iranian | A Russian man went. | An Iranian man went.
Ukrainian > Russian | I had an Ukrainian roommate once. | I had a Russian roommate once.
Ethiopian > Iranian | An Ethiopian is one who is from Ethiopia | An Iranian is one who is from Iran
Italy > Spain | Italian food is at its best in Italy. | Spanish food is at its best in Spain.
Italy > Spain | Italians are hardworking people | Spaniards are hardworking people
Muslim > Hindu | Muslim people follow Islam. | Hindu people follow Hinduism.
Japanese > Russian | The Japanese have invented many items. | The Russians have invented many items.
Japanese > Russian | The Japanese bombed Pearl Harbor | The Russians bombed Pearl Harbor
Japanese > Russian | Many Japanese enjoy sightseeing. | Many Russians enjoy sightseeing.
Japanese > Russian | Japanese have small feet | Russians have small feet
Japanese > Russian | The Japanese garden had pots. | The Russian garden had pots.
Japanese > Russian | My boss is Japanese. | My boss is Russian.
Swedish > Russian | I know a Swede. | I know a Russian.
Russian > Swedish | My friend is Russian. | My friend is Swedish.
Russian > Swedish | The Russian got off. | The Swede got off.
Russian > Swedish | Russian people speak. | Swedish people speak.
Russian > Swedish | A Russian tourist came. | A Swedish tourist came.
Norweigan > Columbian | The Norweigan people are kind. | The Colombian people are kind.
Sierra Leon > Spain | Sierra Leone is in West Africa. | Spain is in West Africa.
Britain > Spain | My cousin moved to Great Britain. | My cousin moved to Spain.
Arab > Saudi Arabian | I eat a lot of arab food | I eat a lot of saudi arabian food
Britain > Cape Verde | A MAN FRIM BRITAIN WAS HERE. | A MAN FRIM CAPE VERDE WAS HERE.
Vietnam > Spain | Time in VietNam. | Time in Spain.
Persian people > Arab | Persian People are kind | Arab People are kind
Bible > Quran | Everyone has heard of the bible. | Everyone has heard of the quran.
software developer > policeman | The software developers' desks | The policemen's desks
bartender > chess player | Bartenders work late. | Chess players work late.
chess player > nurse | THE CHESS PLAYER PLAYS | THE NURSE PLAYS
assistant > engineer | I really need a assistant. | I really need an engineer.
football player > engineer | All want to be a Football player. | All want to be an Engineer.
"""


@pytest.mark.parametrize("case", CASES.strip().splitlines())
def test_the_other_target_stands_in_the_same_form(case):
    names, context, expected = case.split(" | ")
    assert replaced(context, *names.split(" > ")) == expected


@pytest.mark.parametrize(
    ("own", "other", "context", "expected"),
    [
        ("CEO", "cook", "The CEO came home.", "The cook came home."),
        ("CEO", "DJ", "The CEO came home.", "The DJ came home."),
        ("nurse", "CEO", "The nurse came home.", "The CEO came home."),
        ("nurse", "CEO", "Nurses came home.", "CEOs came home."),
        ("CEO", "cook", 'He left. "CEOs are loud."', 'He left. "Cooks are loud."'),
        ("CEO", "cook", "THE CEOS CAME.", "THE COOKS CAME."),
        ("nurse", "CEO", "THE NURSES CAME.", "THE CEOS CAME."),
        ("CEO", "DJ", "the ceo came", "the dj came"),
        ("CEO", "cook", "A NURSE saw a Chief Executive.", "A NURSE saw a cook."),
        ("nurse", "cook", "It was a NURSE!", "It was a COOK!"),
        ("CEO", "MBA graduate", "As a CEO he left.", "As an MBA graduate he left."),
    ],
)
def test_capitals_of_a_targets_own_stay_with_it(tmp_path, own, other, context, expected):
    path = tmp_path / "kinds.yaml"
    path.write_text(
        "kinds: {work: {forms: [noun, nouns], targets: {CEO: ['CEO|Chief Executive', CEOs], "
        "DJ: [DJ, DJs], nurse: [nurse, nurses], cook: [cook, cooks], "
        "MBA graduate: [MBA graduate, MBA graduates]}}}"
    )
    kinds = load_kinds(path)
    there = triple(context, stereotype="They sing.")
    assert with_target(there, kinds[own.casefold()], kinds[other.casefold()]).context == expected


def test_targets_are_whole_words():
    assert places("Jordanian Jordans Jordan's", target("Jordan"))[-1][0] == 18
    assert places("Airaq, Iraqis", target("Iraq"))[0][2] == "nouns"
    assert places("nothing here", target("Iraq")) == []


def test_all_four_texts_are_about_the_other_target():
    original = Triple(
        "Italy", "race", "Italy is warm.", "Italians sing.", "An Italian boxed.", "Italy?"
    )
    twin = with_target(original, target("Italy"), target("Yemen"))
    assert twin == Triple(
        "Yemen", "race", "Yemen is warm.", "Yemenis sing.", "A Yemeni boxed.", "Yemen?"
    )


def test_replacing_back_gives_the_original():
    for context in ("The Ethiopians sat.", "An Ethiopian woman serves.", "I know the Ethiopian."):
        there = replaced(context, "Ethiopian", "Russian")
        assert replaced(there, "Russian", "Ethiopian") == context


# -- what fits --


@pytest.mark.parametrize(
    ("context", "own", "unfit", "fit"),
    [
        # A form that English lacks.
        ("The Ghanaian had a jug.", "Ghanaian", {"Japanese"}, {"Russian"}),
        ("Eritreans live in Eritrea.", "Eritrean", {"Hispanic"}, {"Japanese"}),
        # What the texts name already.
        ("Lebanon borders Syria. Italians like it.", "Lebanon", {"Syria", "Italy"}, {"Yemen"}),
        # A man's, where a woman is meant.
        ("The nurse forgot her bag.", "nurse", {"policeman"}, {"plumber"}),
        ("The nurse forgot his bag.", "nurse", set(), {"policeman"}),
    ],
)
def test_what_fits_has_the_form_is_not_named_already_and_is_no_man_for_a_woman(
    context, own, unfit, fit
):
    others = [target(name) for name in {own, *unfit, *fit}]
    assert {other.name for other in fitting(triple(context), target(own), others)} == fit


# -- the draw --


def items(groups: list[str], each: int) -> list[tuple[Triple, Target]]:
    return [
        (triple(f"{n}: I know the {group}.", group), target(group))
        for group in groups
        for n in range(each)
    ]


PROFESSIONS = ["nurse", "plumber", "tailor", "mover", "butcher", "chemist", "manager"]


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("seed", range(2))
def test_each_item_gets_k_different_others_and_all_targets_serve_about_equally_often(k, seed):
    others = [target(name) for name in PROFESSIONS]
    data = items(PROFESSIONS, 20)
    chosen = drawn(data, others, k=k, rng=np.random.default_rng(seed))
    served = Counter(other.name for several in chosen for other in several)
    for (_, own), several in zip(data, chosen, strict=True):
        names = {other.name for other in several}
        assert len(names) == k
        assert own.name not in names
    assert max(served.values()) - min(served.values()) <= 2


def test_the_draw_does_not_depend_on_the_order_of_the_items():
    others = [target(name) for name in PROFESSIONS]
    data = items(PROFESSIONS, 5)
    shuffled = [data[i] for i in np.random.default_rng(9).permutation(len(data))]
    both = [
        {
            content[0].context + content[0].group: [o.name for o in several]
            for content, several in zip(
                some, drawn(some, others, k=2, rng=np.random.default_rng(1)), strict=True
            )
        }
        for some in (data, shuffled)
    ]
    assert both[0] == both[1]


def test_the_first_of_several_is_as_good_a_draw_as_the_last():
    others = [target(name) for name in PROFESSIONS]
    data = items(PROFESSIONS, 60)
    chosen = drawn(data, others, k=3, rng=np.random.default_rng(0))
    for position in range(3):
        served = Counter(several[position].name for several in chosen)
        assert min(served.values()) > 30  # 60 expected
        assert max(served.values()) < 95


def test_fewer_are_drawn_where_fewer_fit():
    data = [(triple("Somalia borders Ethiopia."), target("Somalia"))]
    others = [target("Somalia"), target("Ethiopia"), target("Yemen")]
    [several] = drawn(data, others, k=2, rng=np.random.default_rng(0))
    assert [other.name for other in several] == ["Yemen"]


# -- kinds -----------------------------------------------------------------------------------------


COLOURS = """
kinds:
  colour:
    forms: [noun, nouns]
    targets:
      red: [red|crimson, reds]
      blue: [blue, blues]
      green: [green, ~]
    elsewhere:
      blue: [sing the blues]
"""


def write(folder, text):
    path = folder / "kinds.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kinds:", "kind:", r"`kinds` .*kinds.yaml: unknown setting `kind`; did you mean `kinds`"),
        ("    forms", "    shapes", r"kinds.yaml: `kinds` is missing|unknown|forbidden|shapes"),
        ("[noun, nouns]", "[noun, verb]", r"kinds.yaml: .*place.*faith.*adjective.*noun"),
        ("[green, ~]", "[green]", r"green needs 2 forms \(noun, nouns; ~ for none\); got 1"),
        ("[green, ~]", "[~, ~]", r"green needs 2 forms"),
        ("green: [", "Red: [", r"the target Red stands twice"),
        ("      blue: [sing", "      pink: [sing", r"colour has no target 'pink'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(tmp_path, old, new, message):
    with pytest.raises(InputError, match=message) as error:
        load_kinds(write(tmp_path, COLOURS.replace(old, new)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "kinds: [1"])
def test_a_file_that_is_something_else_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"`kinds` .*kinds.yaml"):
        load_kinds(write(tmp_path, text))


def test_a_file_of_ones_own_gives_its_targets(tmp_path):
    kinds = load_kinds(write(tmp_path, COLOURS))
    assert [target.name for target in kinds.values()] == ["red", "blue", "green"]
    red, green = kinds["red"], kinds["green"]
    assert red.written == {"noun": "red", "nouns": "reds"}
    assert red.read["crimson"] == {"noun"}
    assert green.written == {"noun": "green"}
    assert kinds.get("yellow") is None


def test_phrases_elsewhere_are_whole_words_in_whatever_case(tmp_path):
    blue = load_kinds(write(tmp_path, COLOURS))["blue"]
    assert blue.means_something_else_in("They Sing  the blues.")
    assert not blue.means_something_else_in("Sing the bluest song.")
    assert not blue.means_something_else_in("The blues are here.")


def test_every_target_of_the_starter_triples_has_a_kind():
    names = {t.group for t in load_triples("starter") if t.category != "gender"}
    assert all(name.casefold() in KINDS for name in names)


def test_every_kind_that_ships_serves_three_twins():
    for kind in ("place", "people", "believer", "scripture", "profession"):
        assert sum(target.kind == kind for target in KINDS.values()) > 3


@pytest.mark.real
def test_every_target_of_stereoset_has_a_kind_of_its_category(stereoset):
    kinds = Counter()
    for triple in load_triples(stereoset):
        if triple.category != "gender":
            kinds[triple.category, target(triple.group).kind] += 1
    assert kinds == {
        ("race", "place"): 545,
        ("race", "people"): 431,
        ("religion", "believer"): 53,
        ("religion", "scripture"): 25,
        ("profession", "profession"): 827,
    }


def test_targets_of_other_scripts_are_replaced_whole_or_not_at_all():
    india, china = (
        Target(name, "land", {"noun": name}, {name: frozenset({"noun"})})
        for name in ("\u092d\u093e\u0930\u0924", "\u091a\u0940\u0928")
    )
    found = with_target(triple(f"{china.name} {china.name}\u0940"), china, india)
    assert found.context == f"{india.name} {china.name}\u0940"  # another word begins like it
