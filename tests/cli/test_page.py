"""What a page calls models: never a path of this machine."""

from tdabias_cli.page import Names


def test_names_are_replaced_at_once_and_the_longest_first():
    """A name that begins another one, or is a short name, is replaced once and where it stands."""
    names = Names({"/home/a/m": "m", "/home/a/m2": "base", "base": "tuned"}, several=True)
    line = "/home/a/m2 beats /home/a/m, (/home/a/m) and base; bases stay."
    assert names.said(line) == "base beats m, (m) and tuned; bases stay."


def test_a_model_without_a_name_to_replace_leaves_a_sentence_as_it_is():
    assert Names({}, several=False).said("As it is.") == "As it is."
