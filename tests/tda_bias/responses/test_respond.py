"""``respond`` on tiny models: nothing where nothing depends on the person; a planted group."""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from tda_bias import InputError
from tda_bias.config import RespondConfig
from tda_bias.models.chat import chat_for
from tda_bias.models.language_model import LanguageModel
from tda_bias.responses.asking import answer_tokens, asked
from tda_bias.responses.brief import respond_brief
from tda_bias.responses.finding import respond_finding
from tda_bias.responses.persons import Person, PersonSet
from tda_bias.responses.prompts import Prompt, PromptSet
from tda_bias.responses.respond import _drawn_by, respond
from tda_bias.responses.result import DECISION, RATIO, Responses
from tda_bias.responses.sampling import response_seed, responses
from tda_bias.store.cache import Cache
from tda_bias.store.identity import names_of
from tests.support.responses import TEMPLATE, some_people, some_prompts, writing_model

CONFIG = RespondConfig(samples=2, tokens=6, n_permutations=199)


@pytest.fixture(scope="module")
def planted():
    """A run of a model that writes by group, and the model."""
    model = writing_model(by_group=True)
    return model, respond(model, some_prompts(), some_people(), config=CONFIG)


@pytest.fixture(scope="module")
def blind():
    model = writing_model(blind=True)
    return respond(model, some_prompts(), some_people(), config=CONFIG)


def said(result, part="result"):
    return " ".join(getattr(respond_finding(result), part))


def test_a_model_that_ignores_the_person_has_no_divergence_and_is_said_to_have_none(blind):
    measures = blind.effects[~blind.effects["measure"].isin([DECISION, RATIO])]
    assert not measures[["twins", "placebos", "value", "per_token"]].to_numpy().any()
    assert (measures["p"][measures["prompts"] > 2] == 1).all()
    assert blind.responses[["twins", "placebos"]].abs().to_numpy().max() < 1e-4
    assert blind.effect(RATIO)["value"] == pytest.approx(1, abs=1e-5)
    assert "changes nothing of what tiny-gpt2 writes" in said(blind)
    assert (blind.words["p"] > 0.05).all()
    # Ten prompts are not too few: nothing differs.
    assert said(blind, "power").endswith("can be given: nothing varies between them.")
    lines = {line.label: line.rest for line in respond_brief(blind).lines}
    assert lines["would have found"] == "not known: nothing varies between prompts"


def test_a_model_that_writes_by_group_is_found_out_and_names_of_a_group_are_equal(planted):
    _, result = planted
    row = result.effect("both")
    assert row["placebos"] == 0
    assert row["twins"] > 0.1
    for measure in ("without echo", "both", "echo", "sampled"):
        assert result.effect(measure)["prompts"] == 10
    assert result.effect("both")["p"] == pytest.approx(1 / 200)
    assert result.effect("without echo")["low"] > 0
    parts = [result.effect(name)["value"] for name in ("without echo", "echo", "both")]
    assert parts[0] + parts[1] == pytest.approx(parts[2], rel=1e-5)
    assert "The group (female or male) brings +" in said(result)
    assert "nats per response is found four times out of five" in said(result, "power")
    assert "Sampled at temperature 1" in said(result, "details")


def test_two_prompts_are_too_few_wherever_it_is_said():
    model = writing_model(by_group=True)
    result = respond(model, some_prompts(2, 0), some_people(), config=CONFIG)
    assert "nats per response (no interval) to what" in said(result)
    assert "not told from chance" not in said(result)
    assert said(result, "power") == "With 2 prompts no smallest effect can be given."
    assert respond_brief(result).said.startswith("Too few prompts to say")


def test_few_people_are_said_to_be_few(planted):
    _, result = planted
    assert "People in prompts: 20 of 20 people, each in 2 at most." in said(result, "control")
    same = result.responses.assign(person=[f"{i % 4}" for i in range(len(result.responses))])
    few = replace(result, responses=same)
    assert "People in prompts: 4 of 20 people only, each in" in said(few, "control")
    assert "the result holds for these few" in said(few, "control")


def test_what_a_run_says_follows_from_its_responses(planted):
    """The effects again, from the table of responses."""
    _, result = planted
    table, prompts = result.responses, result.prompts
    assert len(table) == 10 * 4 * 2
    for row in prompts.to_dict("records"):
        own = table[table["prompt"] == row["id"]]
        assert own.groupby("person").size().tolist() == [2, 2, 2, 2]
        assert own["tokens"].mean() == pytest.approx(row["tokens"])
        assert own["twins"].mean() == pytest.approx(row["twins"], abs=1e-4)
        assert own["placebos"].mean() == pytest.approx(row["placebos"], abs=1e-4)
        assert own["effect"].mean() == pytest.approx(row["effect"], abs=1e-4)
    assert result.effect()["value"] == pytest.approx(prompts["effect"].mean())
    for row in table.to_dict("records"):
        assert len(row["pieces"]) == len(row["moved"]) == len(row["log_ratio"]) == row["tokens"]
        assert sum(row["moved"]) == pytest.approx(row["effect"], abs=1e-5)
        assert "<eos>" not in row["text"]


def test_a_response_can_be_written_again_from_its_seed(planted):
    model, result = planted
    row = result.responses.iloc[5]
    prompt = next(one for one in some_prompts().prompts if one.id == row["prompt"])
    ids = model.token_ids([prompt.about(row["person"])])[0]
    assert row["seed"] == response_seed(0, prompt.id, row["person"], row["number"])
    (again,) = responses(model, [ids], n_tokens=6, seeds=[int(row["seed"])])
    assert model.tokenizer.decode(again) == "".join(row["pieces"])
    assert again == row["ids"]


def test_decisions_are_of_the_answers_at_the_first_place(planted):
    model, result = planted
    import torch

    row = result.decisions.iloc[0]
    people = result.prompts.set_index("id").loc[row["id"]]
    prompt = next(one for one in some_prompts().prompts if one.id == row["id"])
    good, bad = answer_tokens(model, prompt)
    assert model.tokenizer.convert_ids_to_tokens(good) == ["Yes", "yes"]
    assert model.tokenizer.convert_ids_to_tokens(bad) == ["No", "no"]
    odds, mass = {}, []
    for group in ("first", "second"):
        for name in people[group].split(", "):
            ids = model.token_ids([prompt.about(name)])
            with torch.inference_mode():
                p = torch.softmax(model.hf_model(torch.tensor(ids)).logits[0, -1].double(), -1)
            odds.setdefault(group, []).append(float(torch.log(p[good].sum() / p[bad].sum())))
            mass.append(float(p[good].sum() + p[bad].sum()))
    expected = np.mean(odds["first"]) - np.mean(odds["second"])
    assert row["difference"] == pytest.approx(expected, abs=1e-4)
    assert row["mass"] == pytest.approx(np.mean(mass), abs=1e-5)
    assert row["p_first"] == pytest.approx(np.mean([1 / (1 + np.exp(-x)) for x in odds["first"]]))
    assert result.effect(DECISION)["prompts"] == 2
    assert "impact ratio (share of the good answer among both, female to male) " in said(result)
    (line,) = (own for own in respond_brief(result).lines if own.label == "impact ratio")
    assert line.rest.startswith("female to male (")
    ratio = result.decisions["p_first"].mean() / result.decisions["p_second"].mean()
    assert result.effect(RATIO)["value"] == pytest.approx(ratio)


def test_a_resumed_run_and_another_batch_give_the_same(tmp_path):
    how = {"config": CONFIG.model_copy(update={"batch_size": 3})}
    prompts, people, folder = some_prompts(3, 1), some_people(), tmp_path / "parts"
    model = writing_model()
    whole = respond(model, prompts, people, config=CONFIG)
    done = []
    kept = respond(model, prompts, people, **how, cache=partial(Cache, folder),
                   progress=lambda n, of: done.append((n, of)))  # fmt: skip
    assert done[-1] == (32, 32)
    assert done == sorted(done)
    files = sorted(folder.glob("*.npz"))
    assert len(files) == 4
    for path in files[::2]:
        path.unlink()
    resumed = respond(model, prompts, people, **how, cache=partial(Cache, folder))
    assert resumed.responses["text"].tolist() == whole.responses["text"].tolist()
    for name in ("effects", "prompts", "decisions", "words"):
        pd.testing.assert_frame_equal(getattr(resumed, name), getattr(kept, name))
        pd.testing.assert_frame_equal(getattr(kept, name), getattr(whole, name), rtol=1e-2,
                                      atol=1e-5)  # fmt: skip
    other = CONFIG.model_copy(update={"tokens": 5})
    with pytest.raises(InputError, match="tokens was 6, now 5"):
        respond(model, prompts, people, config=other, cache=partial(Cache, folder))


def test_along_the_greedy_response_there_is_no_divergence_and_no_p():
    config = CONFIG.model_copy(update={"greedy": True})
    result = respond(writing_model(by_group=True), some_prompts(), some_people(), config=config)
    assert result.effects[["p", "low", "high", "smallest"]].isna().all(axis=None)
    assert (result.responses["seed"] == -1).all()
    assert len(result.responses) == 10 * 4
    first = said(result)
    assert first.startswith("Along the greedy response, the next-token distributions of tiny-gpt2")
    assert "One response is no divergence, and there is no p" in first
    assert "Sampled" not in said(result, "details")


def test_a_run_is_loaded_as_it_was_saved(planted, tmp_path):
    _, result = planted
    result.save(tmp_path / "run")
    loaded = Responses.load(tmp_path / "run")
    for name in ("effects", "prompts", "decisions", "words"):
        pd.testing.assert_frame_equal(getattr(loaded, name), getattr(result, name),
                                      check_dtype=False)  # fmt: skip
    assert said(loaded) == said(result)
    assert loaded.responses["pieces"].map(list).tolist() == result.responses["pieces"].tolist()


def test_people_whom_the_tokenizer_cannot_tell_apart_are_left_out_and_said():
    model, people = writing_model(), some_people()
    strangers = [Person(name, group) for name, group in (("Zoé", "female"), ("Zed", "male"))]
    more = PersonSet((*people.persons, *strangers), people.record)
    result = respond(model, some_prompts(3, 0), more, config=CONFIG)
    assert result.record.people == 20
    assert result.record.remarks[0].startswith("2 of 22 persons are left out: the tokenizer")
    assert result.record.remarks[0] in respond_brief(result).remarks
    assert not {"Zoé", "Zed"} & set(result.responses["person"])
    few = PersonSet((*people.persons[:1], strangers[0], *people.persons[10:]), people.record)
    with pytest.raises(InputError, match="tells no 2 people of each group apart .1 of female, 10"):
        respond(model, some_prompts(3, 0), few, config=CONFIG)


def test_prompts_that_hold_special_tokens_are_said():
    prompts = PromptSet(
        (*some_prompts(2, 0).prompts, Prompt("s", "own", "Write <pad> about [PERSON]")),
        some_prompts().record,
    )
    (remark,) = respond(writing_model(), prompts, some_people(), config=CONFIG).record.remarks
    assert remark.startswith("1 text holds special tokens of the tokenizer (<pad>)")


def test_a_model_whose_responses_end_otherwise_does_not_go_on_with_saved_ones(tmp_path):
    model, people = writing_model(), some_people()
    cache = partial(Cache, tmp_path / "parts")
    result = respond(model, some_prompts(2, 0), people, config=CONFIG, cache=cache)
    assert result.record.ends == (model.tokenizer.eos_token_id,)
    model.hf_model.generation_config.eos_token_id = [model.tokenizer.convert_tokens_to_ids("kind")]
    with pytest.raises(InputError, match="ends was"):
        respond(model, some_prompts(2, 0), people, config=CONFIG, cache=cache)


# -- how a model is asked --------------------------------------------------------------------------


def chatting() -> LanguageModel:
    model = writing_model()
    model.tokenizer.chat_template = TEMPLATE
    return model


def asked_as(model, **settings):
    config = CONFIG.model_copy(update=settings)
    chat = chat_for(model, config, thinking=config.thinking)
    (first, *_) = asked(model, some_prompts().prompts, some_people(), config, chat)
    name = some_people().persons[first.persons[0]].name
    return chat and chat.thinking, model.tokenizer.decode(first.ids[0]).replace(name, "WHO")


def test_a_chat_template_is_used_where_there_is_one_with_system_prompt_and_thinking():
    text = "Write about WHO who was about ."
    assert asked_as(writing_model()) == (None, text)
    assert asked_as(chatting(), chat="text") == (None, text)
    assert asked_as(chatting()) == ("off", f"<user> {text} <assistant>")
    assert asked_as(chatting(), thinking="on") == ("on", f"<user> {text} <think> <assistant>")
    assert asked_as(chatting(), system="home")[1] == f"<system> home <user> {text} <assistant>"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"system": "home"},
            "`system` goes with chat models, and `model` tiny-gpt2 is asked",
        ),
        (
            {"chat": "template"},
            "its tokenizer has no chat template; ask it in plain text",
        ),
        ({"thinking": "on"}, "`thinking` goes with chat models"),
        ({"tokens": 126}, "the prompt .* has 7 tokens and its response up to 126, .* takes 128"),
    ],
)
def test_settings_without_a_place_in_the_model_are_refused_before_it_runs(settings, message):
    config = CONFIG.model_copy(update=settings)
    with pytest.raises(InputError, match=message):
        respond(writing_model(), some_prompts(), some_people(), config=config)


def test_a_masked_model_and_answers_that_begin_alike_are_refused(tiny_lm):
    with pytest.raises(InputError, match="responses are sampled from causal language models"):
        respond(tiny_lm("bert"), some_prompts(), some_people(), config=CONFIG)
    alike = Prompt("a", "decision", "[PERSON] ?", ("kind nurse", "kind cook"))
    with pytest.raises(InputError, match="begin with the same token"):
        answer_tokens(writing_model(), alike)


@pytest.mark.parametrize(
    ("p", "prompts", "sentence"),
    [
        (0.01, 8, "What the model writes depends on the group"),
        (0.2, 8, "shows in what the model writes is not found."),
        (0.01, 4, "Too few prompts to say"),
    ],
)
def test_the_group_is_said_to_show_where_the_verdict_is_clear(planted, p, prompts, sentence):
    _, result = planted
    made = replace(result, effects=result.effects.assign(p=p, prompts=prompts))
    assert sentence in respond_brief(made).said


def test_saved_responses_are_of_every_setting_that_changes_them_but_through_the_prompt():
    """A setting that is added counts without being listed; greedy ones have no seed or number."""
    asked = names_of(RespondConfig) - {"chat", "system", "thinking"}
    assert set(_drawn_by(RespondConfig())) == asked >= {"samples", "tokens", "greedy", "seed"}
    first, other = (RespondConfig(greedy=True, seed=seed, samples=1 + seed) for seed in (0, 4))
    assert _drawn_by(first) == _drawn_by(other)
    assert _drawn_by(RespondConfig(seed=4)) != _drawn_by(RespondConfig())
