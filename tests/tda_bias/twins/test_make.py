"""Twins as a whole: what is made of which triples, what is left out, and that it is said why."""

import re
from collections import Counter

import pytest

from tda_bias.triples import load_triples
from tda_bias.twins import Twins, load_twins, make_twins, save_twins, shipped_kinds
from tda_bias.twins import make as module
from tda_bias.twins.twins import text_fields
from tda_bias.types import InputError, Triple


def triple(group: str, category: str, context: str, **texts: str) -> Triple:
    continuations = {"stereotype": "It sang.", "anti_stereotype": "It boxed.", "unrelated": "Iron."}
    return Triple(group, category, context, **{**continuations, **texts})  # type: ignore[arg-type]


KINDS = shipped_kinds()
NURSE = triple("nurse", "profession", "The nurse is here.")
MOTHER = triple("mother", "gender", "My mother called.", stereotype="She sang to her dad.")


# -- bad input --


@pytest.mark.parametrize(
    ("context", "options", "message"),
    [
        ("The nurse is here.", {"k": 0}, "`k` must be at least 1; got 0"),
        ("The nurse is here.", {"seed": -1}, "`seed` must not be negative; got -1"),
        ("The nurse is here.", {"k": 99}, r"`k` must be at most 31, .* 'profession'; got 99"),
        ("A nurse.", {"k": 1, "kinds": {"nurse": KINDS["nurse"]}}, "has a single target, nurse"),
        ("The astronaut slept.", {"kind": "target"}, r"not known \(1\): astronaut"),
        ("The astronaut slept.", {"kind": "gender"}, r"no gendered word \(1\)"),
    ],
)
def test_what_cannot_be_made_of_what_was_asked_for_is_refused(context, options, message):
    group = "astronaut" if "astronaut" in context else "nurse"
    with pytest.raises(InputError, match=message):
        make_twins([triple(group, "profession", context)], **options)


def test_without_k_a_small_kind_gives_all_its_other_targets():
    few = {name: KINDS[name] for name in ("nurse", "plumber", "tailor")}
    twins = make_twins([NURSE], kinds=few)
    assert {other.group for other in twins.of(NURSE)} == {"plumber", "tailor"}
    assert twins.record()["k"] == 2
    with pytest.raises(InputError, match="at most 2"):
        make_twins([NURSE], k=3, kinds=few)
    assert make_twins([NURSE]).record()["k"] == 3
    assert len(make_twins([NURSE], k=31).of(NURSE)) == 31


# -- auto --


def test_auto_swaps_in_gender_and_replaces_elsewhere():
    twins = make_twins([MOTHER, NURSE], k=2)
    [father] = twins.of(MOTHER)
    assert father.context == "My father called."
    assert father.stereotype == "He sang to his mom."
    assert father.group == "father"
    assert len(twins.of(NURSE)) == 2
    for other in twins.of(NURSE):
        assert other.category == "profession"
        assert other.group != "nurse"
        assert other.context == f"The {other.group} is here."
    assert twins.note == ""


def test_auto_without_known_targets_makes_none_and_says_so():
    unknown = [
        triple(name, "race", f"The {name} slept.") for name in ("elf", "orc", "gnome", "imp")
    ]
    twins = make_twins(unknown)
    assert list(twins) == []
    assert twins.of(unknown[0]) == ()
    assert twins.note == (
        "no twins: the target is not known (4): elf, gnome, imp, ...; write them by hand, or "
        "name the targets in a file for `tdabias twins --kinds`, and give the twins as a file"
    )
    assert twins.record()["note"] == twins.note
    assert len(twins.excluded) == 4


def test_a_gender_swap_can_be_asked_for_in_any_category():
    hers = triple("nurse", "profession", "The nurse forgot her bag.")
    [his] = make_twins([hers], kind="gender").of(hers)
    assert his.context == "The nurse forgot his bag."
    assert his.group == "nurse"


# -- left out --


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        (triple("parent", "gender", "My parent called.", stereotype="She sang."), module.UNCHANGED),
        (triple("gents", "gender", "The gents called."), module.NOT_UNDONE),
        (triple("elf", "race", "The elf slept."), module.UNKNOWN),
        (triple("Iraq", "race", "They came late."), module.NOT_NAMED),
        (triple("Crimean", "race", "The Crimean War is over."), module.ELSEWHERE),
        (
            triple("Bible", "religion", "The Bible, the Quran, the Torah and the Talmud."),
            module.TOO_FEW,
        ),
    ],
)
def test_what_gets_no_twin_is_listed_with_the_reason(left_out, reason):
    twins = make_twins([left_out, MOTHER, NURSE])
    assert twins.of(left_out) == ()
    assert twins.excluded == {left_out: reason}
    assert len(twins) == 2


def test_a_slip_of_the_original_is_no_reason_to_leave_it_out():
    for context in ("She saw a actress.", "Charles' mother", "MY MOTHER", "James's mother"):
        swapped = triple("mother", "gender", context)
        assert make_twins([swapped]).of(swapped) != (), context


def test_equal_triples_share_their_twins():
    again = Triple("nurse", "profession", *text_fields(NURSE), source="line 9")
    twins = make_twins([NURSE, again])
    assert len(twins) == 1
    assert twins.of(again) == twins.of(NURSE) != ()


# -- what identifies them --


def test_the_same_seed_gives_the_same_twins_in_any_order():
    triples = load_triples("starter", category="race")
    first = make_twins(triples, seed=3)
    second = make_twins(triples[::-1], seed=3)
    assert first.hash() == second.hash()
    assert first.record() == second.record()
    assert make_twins(triples, seed=4).hash() != first.hash()


def test_the_record_says_how_they_were_made():
    twins = make_twins([MOTHER, NURSE], k=2, seed=5)
    made = {"source": "made", "kind": "auto", "k": 2, "seed": 5}
    counts = {"triples": 2, "twins": 3, "excluded": {}, "note": "", "hash": twins.hash()}
    assert twins.record() == {**made, **counts}


# -- the starter triples --


def test_every_starter_triple_gets_twins():
    triples = load_triples("starter")
    twins = make_twins(triples)
    assert len(twins) == len(triples) == 168
    assert not twins.excluded
    for original, several in twins:
        assert len(several) == (1 if original.category == "gender" else 3)
        for twin in several:
            assert twin.category == original.category
            assert twin.group != original.group
            assert twin.context != original.context


# -- StereoSet --


@pytest.fixture(scope="module")
def all_triples(stereoset) -> list[Triple]:
    return load_triples(stereoset)


@pytest.fixture(scope="module")
def all_twins(all_triples) -> Twins:
    return make_twins(all_triples)


@pytest.mark.real
def test_of_stereoset_so_many_triples_get_twins_and_so_many_do_not(all_triples, all_twins):
    assert len(all_triples) == 2123
    assert Counter(triple.category for triple, _ in all_twins) == {
        "gender": 241,
        "profession": 812,
        "race": 946,
        "religion": 71,
    }
    assert Counter((t.category, why) for t, why in all_twins.excluded.items()) == {
        ("gender", module.NOT_UNDONE): 1,
        ("profession", module.ELSEWHERE): 15,
        ("race", module.ELSEWHERE): 30,
        ("religion", module.ELSEWHERE): 7,
    }


@pytest.mark.real
def test_twins_of_stereoset_are_read_again(all_triples, all_twins, tmp_path):
    save_twins(tmp_path / "a.jsonl", all_twins)
    assert load_twins(tmp_path / "a.jsonl", all_triples).hash() == all_twins.hash()


@pytest.mark.real
def test_in_stereoset_the_target_stands_in_every_context_and_in_few_continuations(all_triples):
    elsewhere = 0
    for original in all_triples:
        if original.category != "gender":
            target = KINDS[original.group.casefold()]
            assert target.pattern.search(original.context)
            elsewhere += any(map(target.pattern.search, text_fields(original)[1:]))
    assert elsewhere == 42


@pytest.mark.real
def test_of_stereoset_no_twin_names_its_own_target_and_every_twin_names_the_other(all_twins):
    for original, several in all_twins:
        if original.category == "gender":
            continue
        own = KINDS[original.group.casefold()]
        assert len({twin.group for twin in several}) == 3
        for twin in several:
            other = KINDS[twin.group.casefold()]
            assert other.kind == own.kind
            assert other.pattern.search(twin.context)
            assert not any(map(own.pattern.search, text_fields(twin)))
            for text, changed in zip(text_fields(original), text_fields(twin), strict=True):
                assert (text != changed) == bool(own.pattern.search(text))


@pytest.mark.real
def test_of_stereoset_all_targets_of_a_kind_serve_about_equally_often(all_twins):
    served: dict[str, Counter[str]] = {}
    for original, several in all_twins:
        own = KINDS.get(original.group.casefold())
        if own is not None:
            served.setdefault(own.kind, Counter()).update(twin.group for twin in several)
    ranges = {kind: (len(n), min(n.values()), max(n.values())) for kind, n in served.items()}
    assert ranges["place"][0] == 20
    assert ranges["people"][0] == 16
    assert ranges["profession"][0] == 32 - 2  # teacher and farmer are not in the data
    for kind in ("place", "people", "profession"):
        _, fewest, most = ranges[kind]
        assert most - fewest <= 3, kind
    # Muslim can only stand for Brahmin, 17 triples, and some of these name Islam.
    assert {kind: n for kind, n in ranges.items() if kind in ("believer", "scripture")} == {
        "believer": (8, ranges["believer"][1], 18),
        "scripture": (4, 18, 19),
    }


_VOWEL = re.compile(r"(?!(?:uni|use|uk|eu|one))[aeiou]|hour|heir|honest", re.IGNORECASE)


@pytest.mark.real
def test_of_stereoset_articles_before_new_words_fit_them(all_twins):
    checked = 0
    for original, several in all_twins:
        for twin in several:
            for text, changed in zip(text_fields(original), text_fields(twin), strict=True):
                for found in re.finditer(r"\b(an?) (\w+)", changed, re.IGNORECASE):
                    if found.group(2) not in text:
                        checked += 1
                        is_an = found.group(1).lower() == "an"
                        assert is_an == bool(_VOWEL.match(found.group(2))), changed
    assert checked > 900


# Some of those read by a person: how the context goes on about any other target.
READ = {
    "The Ethiopians sat huddled by the fire.": r"The (\w+ ?)+s sat huddled by the fire\.|The "
    r"Japanese sat huddled by the fire\.",
    "I had an Ukrainian roommate once.": r"I had (an [AEI]|a [^AEIO])[\w ]+ roommate once\.",
    "Italian food is at its best in Italy.": r"[A-Z][\w ]+ food is at its best in [A-Z][\w ]+\.",
    "My neighborhood is a new place for Syrian refugees.": r"My neighborhood is a new place for "
    r"[A-Z][\w ]+(n|sh|i|ese) refugees\.",
    "A MAN FRIM BRITAIN WAS IN THE SHOP.": r"A MAN FRIM [A-Z ]+ WAS IN THE SHOP\.",
    "Many Japanese enjoy sightseeing.": r"Many [\w ]+s enjoy sightseeing\.",
    "Hispanic people are hispanic.": r"([A-Z][\w ]+) people are (?i:\1)\.",
    "There are bibles in almost every hotel room.": r"There are (qurans|torahs|talmuds|books of "
    r"mormon) in almost every hotel room\.",
    "As an engineer, she validates all the calculations.": r"As (an [aeiou]|a [^aeiou])[\w ]+, she "
    r"validates all the calculations\.",
}


@pytest.mark.real
def test_of_stereoset_twins_that_were_read_stay_grammatical(all_twins):
    seen = Counter()
    for original, several in all_twins:
        if original.context in READ:
            for twin in several:
                assert re.fullmatch(READ[original.context], twin.context), twin.context
                seen[original.context] += 1
    assert set(seen) == set(READ)
