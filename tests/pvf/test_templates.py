"""Templates: the published ones, their prompts, and every way a CSV can be wrong."""

import pytest

from pvf.risk import normalised
from pvf.templates import Template, load_templates
from tda_bias.types import InputError


@pytest.mark.parametrize(("name", "total"), [("gender", 5104), ("race", 4997)])
def test_published_templates_have_their_counts(name, total):
    found = load_templates(name)
    assert len(found) == 10
    assert sum(template.count for template in found) == total
    counts = [template.count for template in found]
    assert counts == sorted(counts, reverse=True)
    assert normalised(counts, 10, "counts", zeros=False).sum() == pytest.approx(1.0)


def test_a_prompt_ends_before_the_slot_of_y():
    template = Template("The [X], who came, is [Y] today.", 3)
    assert template.prompt("nurse") == "The nurse, who came, is"
    assert template.after == "today."
    assert load_templates("gender")[0].prompt("tailor") == "The tailor said that"
    assert load_templates("gender")[0].after == ""


def test_text_after_the_slot_is_for_models_that_see_it(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("template,count\nThe [X] is [Y].,2\n")
    assert load_templates(path, y_last=False) == [Template("The [X] is [Y].", 2.0)]
    with pytest.raises(InputError, match=r"line 2: a causal model does not see what follows"):
        load_templates(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("The [Y],1", r"line 3: the template lacks \[X\]"),
        ("The [X],1", r"lacks \[Y\]"),
        ("The [X] and [X] saw [Y],1", r"has more than one \[X\]"),
        ("[Y] is what [X] saw,1", r"\[X\] must come before \[Y\]"),
        ("The [X] saw [Y],0", "the count must be a positive number; got '0'"),
        ("The [X] saw [Y],-2", "got '-2'"),
        ("The [X] saw [Y],nan", "got 'nan'"),
        ("The [X] saw [Y],many", "got 'many'"),
        ("The [X] saw [Y]", "got None"),
        ("The [X] said [Y],4", "line 3: the template stands twice"),
        ('"The [X] saw [Y],4', "line 3: unexpected end of data"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, message):
    path = tmp_path / "t.csv"
    path.write_text(f"template,count\nThe [X] said [Y],5\n{line}\n")
    with pytest.raises(InputError, match=message) as caught:
        load_templates(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "must have the columns template,count"), ("template,count\n", "has no template")],
)
def test_a_file_without_templates_is_refused(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_templates(path)


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="must be gender, race or a readable file; 'age'"):
        load_templates("age")
