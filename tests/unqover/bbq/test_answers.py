"""Files of answers: what is read, what is refused in one line, and nothing that is lost unsaid."""

import json

import pytest

from tda_bias.types import InputError
from tests.support.bbq import write_rows
from unqover.bbq.answers import read_answers
from unqover.bbq.readers import load_bbq
from unqover.bbq.scores import answers_table, item_table


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    return load_bbq(write_rows(tmp_path_factory.mktemp("bbq")))


@pytest.fixture
def written(tmp_path):
    def write(*lines):
        path = tmp_path / "answers.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)))
        return str(path)

    return write


def line(number=0, answer=1, category="Hands", **more):
    return {"category": category, "example_id": number, "answer": answer, **more}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(1, 3), "line 2: `answer` must be 0, 1, 2 or a text; got 3"),
        (line(1, -1), "line 2: `answer` must be 0, 1, 2 or a text; got -1"),
        (line(1, None), "line 2: `answer` must be"),
        (line(99), "line 2: `example_id` 99 of Hands does not occur in the data"),
        (line(1, category="Age"), "line 2: `category` 'Age' does not occur in the data.* Hands"),
        (line(0, 2), "line 2: the item 0 of Hands is answered in .* line 1 too"),
        ({"category": "Hands", "example_id": 1}, "line 2: `answer` is missing"),
        ({"category": "Hands", "answer": 1}, "line 2: `example_id` is missing"),
        ({"doc": {"category": "Hands"}}, "line 2: not a sample that lm_eval writes"),
    ],
)
def test_a_wrong_line_is_named(asked, written, bad, message):
    with pytest.raises(InputError, match=message):
        read_answers(written(line(), bad), asked)


def test_a_file_that_answers_nothing_or_is_not_there_is_refused(asked, written, tmp_path):
    few = asked.limited(24)
    elsewhere = next(iter(few.others))[1]
    with pytest.raises(InputError, match="answers none of the 24 items asked for"):
        read_answers(written(line(elsewhere)), few)
    with pytest.raises(InputError, match="`answers` must be a readable file"):
        read_answers(str(tmp_path / "no.jsonl"), asked)


def test_answers_of_another_language_are_refused(asked, written):
    lines = [line(number, "No se sabe") for number in range(5)]
    with pytest.raises(
        InputError, match="none of 5 texts .* of the language es; `language` is 'en"
    ):
        read_answers(written(*lines), asked)


def test_texts_are_matched_without_case_and_punctuation_and_by_wordings_of_unknown(asked, written):
    lines = []
    for number, one in enumerate(asked.items[:30]):
        said = [one.answers[number % 3].upper() + "!", number % 3, "cannot be determined"]
        lines.append(line(number, said[number // 10]))
    lines.append(line(30, "both of them", said="They are both meant."))
    given = read_answers(written(*lines), asked)
    expected = [number % 3 for number in range(20)]
    expected += [one.unknown for one in asked.items[20:30]]
    assert given.places[:30].tolist() == expected
    assert (given.places[30:] == -1).all()
    assert (given.unread, given.missing) == (1, 17)


def test_answers_to_items_that_a_limit_or_a_category_leaves_out_are_no_fault(asked, written):
    given = read_answers(written(*(line(n) for n in range(48))), asked.limited(24))
    assert (given.places == 1).all()
    assert given.missing == 0


def test_answers_to_categories_that_are_not_asked_for_are_passed_over(written, tmp_path):
    write_rows(tmp_path, name="Age.jsonl", category="Age")
    write_rows(tmp_path, name="SES.jsonl", category="SES")
    lines = [line(n, category=name) for name in ("Age", "SES") for n in range(48)]
    given = read_answers(written(*lines), load_bbq(tmp_path, categories=["ses"]))
    assert (given.missing, given.places.tolist()) == (0, [1] * 48)
    with pytest.raises(InputError, match="answers none of the 48 items"):
        read_answers(written(*lines[:48]), load_bbq(tmp_path, categories=["ses"]))


def test_samples_of_lm_eval_are_read_as_they_are(asked, written):
    samples = []
    for number, one in enumerate(asked.items):
        said = [f" {text}" for text in one.answers if text != "Not known"]
        said += [" Cannot answer", " Unknown"]
        likeliest = number % 4
        samples.append(
            {
                "doc_id": number,
                "doc": {"category": "Hands", "example_id": number},
                "arguments": {f"gen_args_{i}": {"arg_0": "Q", "arg_1": s}
                              for i, s in enumerate(said)},
                "filtered_resps": [[str(-1.0 if i == likeliest else -2.0), "False"]
                                   for i in range(4)],
            }
        )  # fmt: skip
    given = read_answers(written(*samples), asked)
    for number, (one, place) in enumerate(zip(asked.items, given.places, strict=True)):
        people = [p for p in range(3) if p != one.unknown]
        assert place == (people[number % 4] if number % 4 < 2 else one.unknown)


def test_the_file_that_a_run_leaves_is_read_back_to_the_same_answers(asked, written):
    given = read_answers(
        written(*(line(n, asked.items[n].answers[n % 3]) for n in range(40))), asked
    )
    table = answers_table(item_table(asked.items, "answers", answers=given.places))
    assert len(table) == 40
    again = read_answers(written(*table.to_dict("records")), asked)
    assert (again.places == given.places).all()
