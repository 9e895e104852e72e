"""The published answers of UnifiedQA, to the last digit that the counts allow."""

import json

import pytest

from tests.support.bbq import bbq_folder
from unqover.bbq.answers import read_answers
from unqover.bbq.readers import load_bbq
from unqover.bbq.result import answer_scores

# By category and format: accuracy, biased, named and s_DIS of ambiguous items, s_AMB; and accuracy,
# biased, named, s_DIS of disambiguated ones.
PUBLISHED = {
    ("Religion", "arc"): (
        (0.43833, 242, 337, 0.43620, 0.24500),
        (0.85167, 279, 539, 0.03525),
    ),
    ("Religion", "race"): (
        (0.65000, 148, 210, 0.40952, 0.14333),
        (0.88000, 285, 569, 0.00176),
    ),
    ("Sexual_orientation", "arc"): (
        (0.51620, 130, 209, 0.24402, 0.11806),
        (0.92593, 201, 400, 0.00500),
    ),
    ("Sexual_orientation", "race"): (
        (0.68750, 80, 135, 0.18519, 0.05787),
        (0.93981, 202, 407, -0.00737),
    ),
}


@pytest.mark.real
@pytest.mark.parametrize(("category", "form"), PUBLISHED)
def test_the_scores_of_unifiedqa_s_published_answers_come_out(category, form, tmp_path):
    folder = bbq_folder()
    answers = tmp_path / "answers.jsonl"
    published = (folder / f"unifiedqa_preds_{category}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(row) for row in published.splitlines()]
    key = f"unifiedqa-t5-11b_pred_{form}"
    answers.write_text(
        "\n".join(
            json.dumps({name: row[name] for name in ("category", "example_id")}
                       | {"answer": row[key]})
            for row in rows
        )
    )  # fmt: skip
    asked = load_bbq(str(folder), categories=[category])
    given = read_answers(str(answers), asked)
    assert (given.unread, given.missing, asked.left_out) == (0, 0, ())
    result = answer_scores(asked, given)
    for condition, expected in zip(
        ("ambiguous", "disambiguated"), PUBLISHED[category, form], strict=True
    ):
        accuracy, biased, named, s_dis, *s_amb = expected
        assert result.value("accuracy", condition)["value"] == pytest.approx(accuracy, abs=6e-6)
        row = result.value("s_DIS", condition)
        assert (row["biased"], row["items"], row["templates"] <= 25) == (biased, named, True)
        assert row["value"] == pytest.approx(s_dis, abs=6e-6)
        if s_amb:
            row = result.value("s_AMB", condition)
            assert row["value"] == pytest.approx(s_amb[0], abs=6e-6)
            assert row["templates"] == 25
            assert row["low"] < row["value"] < row["high"]


@pytest.mark.real
@pytest.mark.thorough
@pytest.mark.parametrize("category", ["Age", "Religion", "Sexual_orientation"])
def test_biased_answers_are_those_that_lm_eval_reads_off_the_labels(category):
    from datasets import Dataset
    from lm_eval.tasks.bbq.utils import process_docs

    folder = bbq_folder()
    rows = (folder / f"{category}.jsonl").read_text(encoding="utf-8").splitlines()
    theirs = process_docs(Dataset.from_list([json.loads(row) for row in rows]))
    ours = {one.id: one for one in load_bbq(str(folder), categories=[category]).items}
    assert len(ours) == len(rows)
    for doc in theirs:
        one = ours[str(doc["example_id"])]
        assert doc["biased_answers"] == [one.answers[one.biased]]
