"""Placebo twins: the target in another word, or another role, of the same gender."""

from dataclasses import replace

import pytest

from tda_bias.triples import load_triples
from tda_bias.twins import PLACEBOS, make_placebos, make_twins
from tda_bias.twins.make import NO_WORD, PRESENT, UNFIT
from tda_bias.twins.words import gender_words
from tda_bias.types import Triple

MOTHER = Triple(
    "mother", "gender", "The Mother walked.", "She met a mother's aunt.", "She sat.", "Blue cars."
)


def placebo(kind, **fields):
    (_, twins), *_ = make_placebos([replace(MOTHER, **fields)], kind)
    return [(twin.group, twin.context, twin.stereotype) for twin in twins]


def test_a_synonym_takes_the_targets_place_in_all_texts_and_nothing_else_changes():
    assert placebo("synonym") == [("mom", "The Mom walked.", "She met a mom's aunt.")]


def test_a_role_has_two_words_with_the_article_to_fit():
    assert placebo("role", context="A mother walked.", stereotype="She ate.") == [
        ("aunt", "An aunt walked.", "She ate."),
        ("grandmother", "A grandmother walked.", "She ate."),
    ]


def test_a_first_name_has_others_of_the_same_gender():
    found = placebo("role", group="Kate", context="Kate walked.", stereotype="She met Tom.")
    feminine = gender_words().feminine
    assert len(found) == 2
    for name, context, stereotype in found:
        assert name in feminine
        assert (context, stereotype) == (f"{name} walked.", "She met Tom.")


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("synonym", {"group": "herself", "context": "She saw herself."}, NO_WORD),
        ("synonym", {"group": "Kate", "context": "Kate walked."}, NO_WORD),
        ("role", {"category": "race", "group": "Kate", "context": "Kate walked."}, NO_WORD),
        ("role", {}, PRESENT),  # the aunt is somebody else
        ("role", {"context": "The mother of three sons went."}, UNFIT),
        ("synonym", {"context": "The woman walked."}, "the context does not name the target"),
    ],
)
def test_where_no_word_fits_there_is_no_placebo_and_a_reason(kind, fields, reason):
    made = make_placebos([replace(MOTHER, **fields)], kind)
    assert not made
    assert made.reasons() == {reason: 1}


@pytest.mark.parametrize("kind", PLACEBOS)
def test_placebos_of_the_starter_keep_the_gender_of_every_text(kind):
    """Swapping the gender of a placebo changes the words that it changes in the triple."""
    triples = load_triples("starter", category="gender")
    made = make_placebos(triples, kind)
    assert len(made) == len(triples)
    partner = gender_words().partner
    for triple, twins in made:
        for twin in twins:
            assert twin.context != triple.context
            said, own = twin.group.split()[-1], triple.group
            feminine = gender_words().feminine
            if said in partner and own in partner:
                assert (said in feminine) == (own in feminine)


@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "items", "targets"), [("synonym", (137, 403), 6), ("role", (148, 0), 7)]
)
def test_stereosets_triples_have_the_placebos_that_were_read(stereoset, kind, items, targets):
    triples = load_triples(stereoset)
    made = make_placebos(triples, kind)
    found = [sum(t.category == name for t, _ in made) for name in ("gender", "profession")]
    assert tuple(found) == items
    assert len(made) == sum(items)
    assert len({t.group for t, _ in made if t.category == "gender"}) == targets
    swapped = make_twins([twin for _, twins in made for twin in twins if twin.category == "gender"])
    assert len(swapped) > 0.75 * sum(len(ts) for t, ts in made if t.category == "gender")
