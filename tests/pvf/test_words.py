"""What is asked about: the published lists as published, and what a user's file may not be."""

import pytest

from pvf.words import Template, load_classes, load_templates, load_words, load_x_weights
from tda_bias.types import InputError


def loaded(load, text, folder):
    """Load a text from a file."""
    path = folder / "given"
    path.write_text(text, encoding="utf-8")
    return load(path)


def weights_of(path):
    return load_x_weights(path, ("job0", "job1"))


# -- what is published -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count"),
    [("occupations", 120), ("professions", 30), ("winogender", 60), ("titles", 257),
     ("people", 38), ("targets:gender", 8), ("targets:all", 76)],
)  # fmt: skip
def test_published_words_are_complete(name, count):
    found = load_words(name)
    assert len(set(found.words)) == len(found.words) == count
    assert found.source


@pytest.mark.parametrize(
    ("name", "sizes", "shared"),
    [
        ("gender", [39, 39], ("canary",)),
        ("pronouns", [1, 1], ()),
        ("race", [1, 2, 1, 2, 1], ()),
        ("religion", [1] * 6, ()),
    ],
)
def test_published_classes_are_complete_without_the_words_they_share(name, sizes, shared):
    found = load_classes(name)
    assert [len(words) for words in found.classes.values()] == sizes
    assert found.shared == shared


@pytest.mark.parametrize(("name", "total"), [("gender", 5104), ("race", 4997)])
def test_published_templates_have_their_counts(name, total):
    counts = [template.count for template in load_templates(name)]
    assert (len(counts), sum(counts)) == (10, total)
    assert counts == sorted(counts, reverse=True)


# -- files of a user's own -------------------------------------------------------------------------


def test_files_of_a_users_own_are_read(tmp_path):
    words = loaded(load_words, "nurse # a comment\n\n tailor\n", tmp_path)
    assert words.words == ("nurse", "tailor")
    text = "young: [boy, girl, child]\nold: [man, woman, child]"
    classes = loaded(load_classes, text, tmp_path)
    assert classes.classes == {"young": ("boy", "girl"), "old": ("man", "woman")}
    assert classes.shared == ("child",)
    templates = loaded(load_templates, "template,count\nThe [X] is [Y].,2\n", tmp_path)
    assert templates == [Template("The [X] is [Y].", 2.0)]
    weights, missing = loaded(weights_of, "x,weight\njob1,3\nelse,5\n", tmp_path)
    assert (weights.tolist(), missing) == ([0, 3], ["job0"])


def template(line):
    return f"template,count\nThe [X] said [Y],5\n{line}\n"


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        (load_words, "# nothing", "is empty"),
        (load_words, "nurse\nnurse", "holds 'nurse' twice"),
        (load_classes, "", "must hold `class: "),
        (load_classes, "a: [x]", "at least 2 classes; it has 1"),
        (load_classes, "a: [x]\nb: y", "the class 'b' must be a list of words"),
        (load_classes, "a: [x]\nb: [no]", "False in 'b' is not a word; put it in quotes"),
        (load_classes, "a: [x, x]\nb: [y]", "the class 'a' holds 'x' twice"),
        (load_classes, "a: [x, y]\nb: [y]", "every word of 'b' stands in another class too"),
        (load_classes, "a: [x", r"is not YAML \(line"),
        (load_templates, "", "has no column `template`; it needs template, count"),
        (load_templates, "template,count\n", "has no template"),
        (load_templates, template("The [Y],1"), r"line 3: the template lacks \[X\]"),
        (load_templates, template("The [X],1"), r"lacks \[Y\]"),
        (load_templates, template("The [X] and [X] saw [Y],1"), r"has more than one \[X\]"),
        (load_templates, template("[Y] is what [X] saw,1"), r"\[X\] must come before \[Y\]"),
        (load_templates, template("The [X] saw [Y],0"), "must be a positive number; got '0'"),
        (load_templates, template("The [X] saw [Y],many"), "got 'many'"),
        (load_templates, template("The [X] saw [Y]"), "line 3: 1 fields, where the heading has 2"),
        (load_templates, template("The [X] said [Y],4"), "line 3: the template stands twice"),
        (weights_of, "word,weight\njob0,1\n", "has no column `x`"),
        (weights_of, "x,weight\njob0,-1\n", "line 2: weight must be 0 or more; got '-1'"),
        (weights_of, "x,weight\njob0,1\njob0,2\n", "the word 'job0' is empty or stands twice"),
        (weights_of, "x,weight\nelse,1\n", "has none of the words"),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(tmp_path, load, text, message):
    with pytest.raises(InputError, match=message) as caught:
        loaded(load, text, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("load", "known"),
    [
        (load_words, "occupations, professions, people, winogender, titles, targets:gender, .*"),
        (load_classes, "gender, pronouns, race, religion, disability"),
        (load_templates, "gender, race"),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(load, known):
    with pytest.raises(InputError, match=f"must be {known} or a readable file; 'age'"):
        load("age")


def test_a_number_sign_inside_a_word_is_part_of_it(tmp_path):
    text = "# jobs\nC# developer\nnurse # of a hospital\ncook\t# of a kitchen\n"
    assert loaded(load_words, text, tmp_path).words == ("C# developer", "nurse", "cook")
