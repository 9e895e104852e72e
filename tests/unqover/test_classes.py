"""Class files: the published sizes, and one clear line for every mistake."""

from collections import Counter

import pytest
import yaml

from tda_bias.types import InputError
from tests.support.answers import FEW
from unqover.classes import NAMED, attributes_of, load_class
from unqover.config import DesignConfig
from unqover.questions import sampled_design, templates


@pytest.mark.parametrize(
    ("name", "subjects", "n_templates"),
    [
        ("gender", 140, 4),
        ("nationality", 69, 12),
        ("ethnicity", 15, 14),
        ("religion", 11, 14),
        ("education", 7, 5),
        ("age", 7, 10),
        ("gender_race", 30, 5),
        ("gender_race_names", 36, 4),
    ],
)
def test_classes_have_the_published_sizes(name, subjects, n_templates):
    found = load_class(name)
    assert name in NAMED
    assert len(found.subjects) == subjects
    assert len(templates(found)) == n_templates
    assert found.source


def test_attributes_have_the_published_kinds():
    assert len(attributes_of("occupations")) == 70
    assert len(attributes_of("professions")) == 30
    kinds = Counter(a.kind for a in attributes_of("conduct"))
    assert kinds == {"rude": 14, "indecent": 12, "crime": 12, "negative": 8, "poor": 4}
    kinds = Counter(a.kind for a in attributes_of("places"))
    assert kinds == {"crime": 6, "rude": 3, "poor": 3, "indecent": 2}
    for name in ("conduct", "places"):
        assert all(a.sensitive for a in attributes_of(name))
    for one in [a for n in ("conduct", "places") for a in attributes_of(n)]:
        assert " not " not in one.antonym
        assert one.says != one.antonym


def test_full_gender_class_has_the_published_number_of_questions():
    design = sampled_design(load_class("gender"), DesignConfig(subjects=99, attributes=99))
    # 70 x 70 pairs in two orders, 4 templates, 70 attributes; each has two questions.
    assert design.n_questions == 2 * 2_744_000


def test_a_class_needs_one_file_only(few_file):
    found = load_class(few_file)
    assert found.name == "few"
    assert [s.levels[0] for s in found.subjects] == ["female", "female", "male", "male"]
    assert [a.name for a in found.attributes["name"]] == ["nurse", "cook", "old uncle"]
    other = load_class(few_file, attribute_set="professions")
    assert len(other.attributes["man"]) == 30


def changed(**changes):
    content = yaml.safe_load(FEW)
    for key, value in changes.items():
        if value is None:
            del content[key]
        else:
            content[key] = value
    return content


FRAME = {"form": "name", "context": "{first} met {second}."}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(colour="red"), "unknown setting `colour`; allowed are source"),
        (changed(compare=None), "`compare` is missing"),
        (changed(compare="some"), "`compare` must be one of across, all"),
        (changed(subjects=["Mary", "Mary"]), "holds 'Mary' twice"),
        (changed(subjects=["Mary"]), "must name at least 2; got 1"),
        (changed(subjects={"female": ["Mary", "Ann"], "male": []}), "the list of male is empty"),
        (changed(subjects={"female": ["Mary", "Ann"]}), "across needs at least 2 groups"),
        (changed(subjects=None), "either `subjects` or `cross`"),
        (changed(factors=[]), "`factors` is missing"),
        (changed(factors=["a", "b"]), "one level for each of `factors`"),
        (changed(cross={"a": ["x", "y"]}), "either `subjects` or `cross`"),
        (changed(frames=[]), "`frames` must not be empty"),
        (changed(frames=[{**FRAME, "context": "{first} left."}]), "the template lacks {second}"),
        (changed(frames=[{**FRAME, "question": "Who?"}]), "the template lacks {attribute}"),
        (
            changed(frames=[{**FRAME, "context": "{first}, {first} and {second}."}]),
            "has more than one {first}",
        ),
        (changed(frames=[{**FRAME, "form": "plural"}]), "has the form 'plural'"),
        (changed(forms={"name": {"mention": "a", "answer": "{subject}"}}), "must have {subject}"),
        (
            changed(forms={"name": {"mention": "{subject} {noun}", "answer": "{subject}"}}),
            "needs `nouns`",
        ),
        (changed(attributes="jobs"), "must be one of occupations, professions, conduct, places"),
        (
            changed(subjects=[{"levels": ["a"], "name": ["x"]}]),
            "unknown setting `name`; allowed are levels, members",
        ),
        (changed(attributes={"predicates": [{"says": "ran"}]}), "`predicates`"),
        (changed(attributes={"nouns": []}), "either `nouns` or `predicates`"),
        (changed(attributes={"nouns": ["cook", "cook"]}), "holds 'cook' twice"),
    ],
)
def test_a_wrong_class_file_is_named_in_one_line(tmp_path, content, message):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError, match="class` .*mine.yaml: ") as error:
        load_class(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "--" not in str(error.value)  # no key of a file is an option


def test_an_unknown_class_is_told_what_there_is():
    with pytest.raises(InputError, match="must be gender, nationality, .* or a readable file"):
        load_class("height")
