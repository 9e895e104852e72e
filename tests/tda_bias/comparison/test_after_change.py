"""Commands that follow a change of a model: what it says, and what it writes."""

import shlex
from pathlib import Path

import pytest

from tda_bias.comparison.after_change import comparing
from tda_bias.comparison.battery import battery
from tda_bias.responses.persons import people_of
from tdabias_cli.compare import CompareSettings
from tests.support.runs import record_of

GPT = "GPT2LMHeadModel"


def commands(category="gender", architecture=GPT, **settings):
    record = record_of(settings=settings)
    after = Path("my runs/edited")
    return comparing("a b", after, category=category, record=record, architecture=architecture)


def test_the_battery_takes_the_texts_and_what_is_written_a_folder_of_its_own():
    says, writes = commands(data="own.csv")
    models = "tdabias compare 'a b' 'my runs/edited'"
    assert says == f"{models} --category gender --data own.csv"
    assert writes == f"{models} --only respond --out 'my runs/edited-respond'"
    options = dict(zip(*[iter(shlex.split(writes)[4:])] * 2, strict=True))
    given = {name.removeprefix("--"): value for name, value in options.items()}
    own = CompareSettings(before="a b", after="my runs/edited", **given | {"only": ("respond",)})
    assert own.folder != CompareSettings(before="a b", after="my runs/edited").folder


@pytest.mark.parametrize(("category", "option"), [("all", ""), ("race", " --category race")])
def test_people_are_of_the_category_that_the_change_was_chosen_on(category, option):
    assert f"--only respond{option} --out" in commands(category)[1]


@pytest.mark.parametrize(
    ("category", "architecture"),
    [("religion", GPT), ("gender", "BertForMaskedLM"), ("gender", "T5ForConditionalGeneration"),
     ("gender", None)],
)  # fmt: skip
def test_where_there_are_no_such_people_or_nothing_is_written_the_battery_is_all(
    category, architecture
):
    [says] = commands(category, architecture)
    assert "respond" not in says


@pytest.mark.parametrize(
    ("category", "people"), [("race", "race"), ("age", "age"), ("religion", "gender")]
)
def test_compare_asks_about_people_of_the_category_where_there_are_some(category, people):
    texts = {"data": "starter", "sentences": "none", "text": "none"}
    (measure,), _ = battery("smoke", **texts, twins="auto", only=["respond"], category=category)
    assert measure.about["persons"] == people_of(people).record.revision
    assert " and ".join(people_of(people).groups) in measure.outcomes[0].about
