"""Another target in a triple: forms, articles, case, what fits, and who is drawn how often."""

from collections import Counter

import numpy as np
import pytest

from tda_bias.twins.kinds import Kinds, Target, shipped_kinds
from tda_bias.twins.targets import drawn, fits, places, pool, with_target
from tda_bias.types import InputError, Triple

KINDS = shipped_kinds()


def target(name: str) -> Target:
    found = KINDS.target(name)
    assert found is not None
    return found


def triple(context: str, group: str = "x", stereotype: str = "They sing.") -> Triple:
    return Triple(group, "race", context, stereotype, "They box.", "Iron rusts.", "file line 1")


def replaced(context: str, own: str, other: str) -> str:
    return with_target(triple(context), target(own), target(other)).context


# -- bad input --


def kind_of(n: int) -> Kinds:
    names = [f"t{i}" for i in range(n)]
    return Kinds(tuple(Target(n, "k", {"noun": n}, {n: frozenset({"noun"})}) for n in names))


def test_a_kind_with_a_single_target_is_refused():
    with pytest.raises(InputError, match=r"the kind 'k' has a single target, t0; a twin needs"):
        pool(kind_of(1), "k", {"t0"}, 1)


def test_more_twins_than_other_targets_are_refused():
    with pytest.raises(InputError, match=r"`k` must be at most 3, the other targets.*got 4"):
        pool(kind_of(4), "k", {"t0"}, 4)
    assert len(pool(kind_of(4), "k", {"t0"}, 3)) == 4


def test_targets_of_the_data_are_drawn_where_they_are_enough():
    kinds = kind_of(6)
    present = {"t0", "t2", "t4"}
    assert [t.name for t in pool(kinds, "k", present, 2)] == ["t0", "t2", "t4"]
    assert [t.name for t in pool(kinds, "k", present, 3)] == [f"t{i}" for i in range(6)]


# -- forms --


@pytest.mark.parametrize(
    ("context", "own", "other", "expected"),
    [
        (
            "Many people live in Ethiopia.",
            "Ethiopia",
            "Sierra Leon",
            "Many people live in Sierra Leone.",
        ),
        (
            "The Ethiopians sat by the fire.",
            "Ethiopian",
            "Russian",
            "The Russians sat by the fire.",
        ),
        ("An Ethiopian woman serves.", "Ethiopian", "Russian", "A Russian woman serves."),
        ("A Russian man went.", "Russian", "Iranian", "An Iranian man went."),
        (
            "I had an Ukrainian roommate once.",
            "Ukrainian",
            "Russian",
            "I had a Russian roommate once.",
        ),
        # one form of a word leads to another
        (
            "An Ethiopian is a person born in Ethiopia",
            "Ethiopian",
            "Iranian",
            "An Iranian is a person born in Iran",
        ),
        (
            "Italian food is at its best in Italy.",
            "Italy",
            "Spain",
            "Spanish food is at its best in Spain.",
        ),
        ("Italians are hardworking people", "Italy", "Spain", "Spaniards are hardworking people"),
        ("Muslim people follow Islam.", "Muslim", "Hindu", "Hindu people follow Hinduism."),
        # nouns and adjectives that look the same
        (
            "The Japanese have invented many items.",
            "Japanese",
            "Russian",
            "The Russians have invented many items.",
        ),
        (
            "The Japanese bombed Pearl Harbor",
            "Japanese",
            "Russian",
            "The Russians bombed Pearl Harbor",
        ),
        (
            "Many Japanese enjoy sightseeing.",
            "Japanese",
            "Russian",
            "Many Russians enjoy sightseeing.",
        ),
        ("Japanese have small feet", "Japanese", "Russian", "Russians have small feet"),
        ("The Japanese garden had pots.", "Japanese", "Russian", "The Russian garden had pots."),
        ("My boss is Japanese.", "Japanese", "Russian", "My boss is Russian."),
        ("I know a Swede.", "Swedish", "Russian", "I know a Russian."),
        ("My friend is Russian.", "Russian", "Swedish", "My friend is Swedish."),
        ("The Russian got off.", "Russian", "Swedish", "The Swede got off."),
        ("Russian people speak.", "Russian", "Swedish", "Swedish people speak."),
        ("A Russian tourist came.", "Russian", "Swedish", "A Swedish tourist came."),
        # spelling and case as in the texts
        (
            "The Norweigan people are kind.",
            "Norweigan",
            "Columbian",
            "The Colombian people are kind.",
        ),
        ("Sierra Leone is in West Africa.", "Sierra Leon", "Spain", "Spain is in West Africa."),
        ("My cousin moved to Great Britain.", "Britain", "Spain", "My cousin moved to Spain."),
        ("I eat a lot of arab food", "Arab", "Saudi Arabian", "I eat a lot of saudi arabian food"),
        (
            "A MAN FRIM BRITAIN WAS HERE.",
            "Britain",
            "Cape Verde",
            "A MAN FRIM CAPE VERDE WAS HERE.",
        ),
        ("Time in VietNam.", "Vietnam", "Spain", "Time in Spain."),
        ("Persian People are kind", "Persian people", "Arab", "Arab People are kind"),
        ("Everyone has heard of the bible.", "Bible", "Quran", "Everyone has heard of the quran."),
        # professions
        (
            "The software developers' desks",
            "software developer",
            "policeman",
            "The policemen's desks",
        ),
        ("Bartenders work late.", "bartender", "chess player", "Chess players work late."),
        ("THE CHESS PLAYER PLAYS", "chess player", "nurse", "THE NURSE PLAYS"),
        ("I really need a assistant.", "assistant", "engineer", "I really need an engineer."),
        (
            "All want to be a Football player.",
            "football player",
            "engineer",
            "All want to be an Engineer.",
        ),
    ],
)
def test_the_other_target_stands_in_the_same_form(context, own, other, expected):
    assert replaced(context, own, other) == expected


def test_targets_are_whole_words():
    assert places("Jordanian Jordans Jordan's", target("Jordan"))[-1].start == 18
    assert places("Airaq, Iraqis", target("Iraq"))[0].form == "nouns"
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


def test_a_target_without_the_form_does_not_fit():
    of_one = fits(triple("The Ghanaian had a jug."), target("Ghanaian"))
    assert not of_one(target("Japanese"))
    assert of_one(target("Russian"))
    of_place = fits(triple("Eritreans live in Eritrea."), target("Eritrean"))
    assert not of_place(target("Hispanic"))
    assert of_place(target("Japanese"))


def test_a_target_that_is_named_already_does_not_fit():
    fit = fits(triple("Lebanon borders Syria.", stereotype="Italians like it."), target("Lebanon"))
    assert not fit(target("Syria"))
    assert not fit(target("Italy"))
    assert not fit(target("Lebanon"))
    assert fit(target("Yemen"))


def test_a_policeman_does_not_fit_where_a_woman_is_meant():
    hers = fits(triple("The nurse forgot her bag."), target("nurse"))
    his = fits(triple("The nurse forgot his bag."), target("nurse"))
    assert not hers(target("policeman"))
    assert hers(target("plumber"))
    assert his(target("policeman"))


# -- the draw --


def items(groups: list[str], each: int) -> list[tuple[Triple, Target]]:
    return [
        (triple(f"{n}: I know the {group}.", group), target(group))
        for group in groups
        for n in range(each)
    ]


PROFESSIONS = ["nurse", "plumber", "tailor", "mover", "butcher", "chemist", "manager"]


@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(5))
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


def test_other_seeds_draw_others():
    others = [target(name) for name in PROFESSIONS]
    data = items(PROFESSIONS, 5)
    draws = [
        [[o.name for o in s] for s in drawn(data, others, k=2, rng=np.random.default_rng(seed))]
        for seed in (0, 0, 1)
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]


def test_fewer_are_drawn_where_fewer_fit():
    data = [(triple("Somalia borders Ethiopia."), target("Somalia"))]
    others = [target("Somalia"), target("Ethiopia"), target("Yemen")]
    [several] = drawn(data, others, k=2, rng=np.random.default_rng(0))
    assert [other.name for other in several] == ["Yemen"]
