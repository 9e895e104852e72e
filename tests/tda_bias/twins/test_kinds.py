"""Kinds of targets: what ships, and what a file of one's own may hold."""

from collections import Counter

import pytest

from tda_bias.triples import load_triples
from tda_bias.twins.kinds import load_kinds, shipped_kinds
from tda_bias.types import InputError

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
        ("kinds:", "kind:", r"`kinds` .*kinds.yaml: unknown setting `kind`; allowed are kinds"),
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


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="`kinds` must be a YAML file or a readable file"):
        load_kinds(tmp_path / "none.yaml")


def test_a_file_of_ones_own_gives_its_targets(tmp_path):
    kinds = load_kinds(write(tmp_path, COLOURS))
    assert [target.name for target in kinds.of_kind("colour")] == ["red", "blue", "green"]
    red, green = kinds.target("RED"), kinds.target("green")
    assert red is not None
    assert green is not None
    assert red.written == {"noun": "red", "nouns": "reds"}
    assert red.read["crimson"] == {"noun"}
    assert green.written == {"noun": "green"}
    assert kinds.target("yellow") is None


def test_phrases_elsewhere_are_whole_words_in_whatever_case(tmp_path):
    blue = load_kinds(write(tmp_path, COLOURS)).target("blue")
    assert blue is not None
    assert blue.means_something_else_in("They Sing  the blues.")
    assert not blue.means_something_else_in("Sing the bluest song.")
    assert not blue.means_something_else_in("The blues are here.")


def test_every_target_of_the_starter_triples_has_a_kind():
    names = {t.group for t in load_triples("starter") if t.category != "gender"}
    assert all(shipped_kinds().target(name) is not None for name in names)


def test_every_kind_that_ships_serves_three_twins():
    for kind in ("place", "people", "believer", "scripture", "profession"):
        assert len(shipped_kinds().of_kind(kind)) > 3


@pytest.mark.real
def test_every_target_of_stereoset_has_a_kind_of_its_category(stereoset):
    kinds = Counter()
    for triple in load_triples(stereoset):
        if triple.category != "gender":
            target = shipped_kinds().target(triple.group)
            assert target is not None, triple.group
            kinds[triple.category, target.kind] += 1
    assert kinds == {
        ("race", "place"): 545,
        ("race", "people"): 431,
        ("religion", "believer"): 53,
        ("religion", "scripture"): 25,
        ("profession", "profession"): 827,
    }
