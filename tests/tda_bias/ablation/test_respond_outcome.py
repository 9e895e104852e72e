"""Responses and decisions with heads removed: distributions taken literally, an edited model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tda_bias.ablation.effects import HeadEffects
from tda_bias.ablation.respond_outcome import RespondEffect
from tda_bias.config import RespondConfig
from tda_bias.responses.again import Written
from tda_bias.responses.asking import Asked, answer_tokens, asked
from tda_bias.responses.echo import echo_classes
from tda_bias.responses.respond import respond
from tda_bias.responses.result import DECISION
from tda_bias.store.cache import Cache
from tda_bias.types import HeadId, InputError
from tests.support.responses import some_people, some_prompts, writing_model
from tests.tda_bias.ablation.test_ablation import without_weights
from tests.tda_bias.ablation.test_word_outcome import first_order

HEADS = (HeadId(0, 1), HeadId(1, 0))
CONFIG = RespondConfig(samples=2, tokens=5, n_permutations=99)
PROMPTS = some_prompts(2, 2)


def model_in_double(**options):
    model = writing_model(**options)
    model.hf_model.double()
    return model


def written_by(model) -> list[Written]:
    """Responses of a few tokens to every prompt, pronouns and names among them."""
    rng = np.random.default_rng(1)
    found = []
    for one in asked(model, PROMPTS.prompts, some_people(), CONFIG, None):
        names = [some_people().persons[number].name for number in one.persons]
        words = ["she", "he", "kind", "strong", *names]
        ids = model.tokenizer.convert_tokens_to_ids(words)
        responses = tuple(tuple(map(int, rng.choice(ids, size=4))) for _ in range(8))
        answers = answer_tokens(model, one.prompt) if one.prompt.choices else None
        found.append(Written(one, tuple(names), responses, (0, 0, 1, 1, 2, 2, 3, 3), answers))
    return found


def distribution(model, ids):
    """What may come next, by one plain forward pass."""
    with torch.no_grad():
        logits = model.hf_model(input_ids=torch.tensor([list(ids)])).logits[0, -1]
    return torch.softmax(logits.double(), -1).numpy()


def literal_place(p, token, classes, going) -> float:
    """The log-probability of a token without its echo, from the whole distribution."""
    if token in going:
        return 0.0
    left = 1 - sum(p[one] for one in going)
    of = dict(zip(classes.token.tolist(), classes.of.tolist(), strict=True))
    alike = [t for t in of if token in of and of[t] == of[token] and t not in going] or [token]
    return float(np.log(sum(p[one] for one in alike) / left))


def literal(model, written) -> dict[str, float]:
    """Both numbers, person by person and token by token."""
    effects, differences = [], []
    for one in written:
        classes = echo_classes(model, one.names)
        of_person = []
        for person in range(4):
            own = []
            for ids, whose in zip(one.responses, one.whose, strict=True):
                if whose != person:
                    continue
                sums = [
                    sum(
                        literal_place(
                            distribution(model, [*one.asked.ids[reader], *ids[:place]]),
                            token, classes, classes.names_go_on(ids)[place],
                        )
                        for place, token in enumerate(ids)
                    )
                    for reader in range(4)
                ]  # fmt: skip
                twins = [2, 3] if person < 2 else [0, 1]
                placebo = {0: 1, 1: 0, 2: 3, 3: 2}[person]
                own.append(sums[placebo] - np.mean([sums[twin] for twin in twins]))
            of_person.append(np.mean(own) if own else 0.0)
        effects.append(np.mean(of_person))
        if one.answers is not None:
            first = [distribution(model, ids) for ids in one.asked.ids]
            good, bad = one.answers
            odds = [np.log(p[good].sum() / p[bad].sum()) for p in first]
            differences.append(np.mean(odds[:2]) - np.mean(odds[2:]))
    return {"response_effect": float(np.mean(effects)), "decision": float(np.mean(differences))}


def measured(model, written, heads=()) -> dict[str, float]:
    effects, outcome = HeadEffects(model, (), ablation="zero"), RespondEffect(model, written)
    arrays = Cache().each(effects.removal_parts(outcome.readings, [(), heads]))
    return outcome.summary(outcome.readings.by_tree(arrays, 2)[1])


def test_models_of_another_kind_and_nothing_to_read_are_refused(tiny_lm):
    model = writing_model()
    with pytest.raises(InputError, match="tiny-bert is a masked language model; responses are re"):
        RespondEffect(tiny_lm("bert"), written_by(model))
    nothing = [replace(one, responses=(), whose=(), answers=None) for one in written_by(model)]
    with pytest.raises(InputError, match="there is neither a decision nor a response to be read"):
        RespondEffect(model, nothing)


def test_both_numbers_are_those_of_literal_distributions_of_an_edited_model():
    model = model_in_double()
    written = written_by(model)
    for heads in ((), HEADS[:1], HEADS):
        expected = literal(without_weights(model, heads), written)
        found = measured(model, written, heads)
        assert {name: found[name] for name in expected} == pytest.approx(expected, abs=2e-6)
        assert all(abs(value) > 1e-3 for value in expected.values())
    assert RespondEffect(model, written).read == (
        "32 responses of the unchanged model and 2 decisions"
    )


def test_names_of_several_tokens_go_on_as_echo(monkeypatch):
    """After the beginning of a name only what else may follow counts."""
    model = model_in_double()
    written = written_by(model)
    ids = model.tokenizer.convert_tokens_to_ids
    begun = {(ids("she"),): (ids("kind"), ids("he"))}

    found = echo_classes

    def classes(of_model, names):
        return replace(found(of_model, names), begun=begun)

    monkeypatch.setattr("tda_bias.ablation.respond_outcome.echo_classes", classes)
    monkeypatch.setitem(globals(), "echo_classes", classes)
    places = [
        classes(model, one.names).names_go_on(ids) for one in written for ids in one.responses
    ]
    assert any(going for of_response in places for going in of_response)
    expected, own = literal(model, written), measured(model, written)
    assert {name: own[name] for name in expected} == pytest.approx(expected, abs=2e-6)


def test_of_the_unchanged_model_both_are_what_respond_measures():
    """Along many responses of its own the effect is near the exact one; decisions are equal."""
    model = writing_model(by_group=True)
    config = RespondConfig(samples=40, tokens=5, n_permutations=99)
    run = respond(model, PROMPTS, some_people(), config=config)
    exact = run.effect()
    written = [
        Written(
            one,
            tuple(some_people().persons[number].name for number in one.persons),
            tuple(tuple(map(int, ids)) for ids in rows["ids"]),
            tuple(i for i in range(4) for _ in range(40)),
            answer_tokens(model, one.prompt) if one.prompt.choices else None,
        )
        for one in asked(model, PROMPTS.prompts, some_people(), config, None)
        for rows in [run.responses[run.responses["prompt"] == one.prompt.id]]
    ]
    found = measured(model, written)
    assert found["response_effect"] == pytest.approx(exact["value"], rel=0.25)
    assert found["decision"] == pytest.approx(run.effect(DECISION)["value"], abs=1e-5)
    assert found["decision_mass"] == pytest.approx(run.decisions["mass"].mean(), abs=1e-6)


def test_a_model_that_ignores_the_person_has_neither():
    model = model_in_double(blind=True)
    found = measured(model, written_by(model))
    assert found["response_effect"] == pytest.approx(0, abs=1e-9)
    assert found["decision"] == pytest.approx(0, abs=1e-9)


def test_first_order_effects_are_derivatives_by_scaling_a_heads_output():
    model = model_in_double()
    written = written_by(model)
    effects, outcome = HeadEffects(model, (), ablation="zero"), RespondEffect(model, written)
    found, step = first_order(effects, outcome), 1e-4
    for head in HEADS:
        layer = effects.layers[head.layer]
        sides = {}
        for sign in (1, -1):

            def hook(_, arguments, layer=layer, head=head, factor=1 + sign * step):
                z = arguments[0].clone()
                layer.by_head(z)[:, :, head.head] *= factor
                return (z,)

            handle = layer.projection.register_forward_pre_hook(hook)
            sides[sign] = literal(model, written)
            handle.remove()
        for name in ("response_effect", "decision"):
            slope = (sides[1][name] - sides[-1][name]) / (2 * step)
            assert found[name][head.layer, head.head] == pytest.approx(-slope, rel=1e-4, abs=1e-8)
            assert abs(slope) > 1e-5


def test_decisions_alone_need_no_responses():
    model = model_in_double()
    every = [replace(one, responses=(), whose=()) for one in written_by(model)]
    alone = [one for one in every if isinstance(one.asked, Asked) and one.answers is not None]
    found = measured(model, alone)
    assert list(found) == ["decision", "decision_mass"]
    assert found["decision"] == pytest.approx(measured(model, written_by(model))["decision"])
    assert RespondEffect(model, alone).read == "0 responses of the unchanged model and 2 decisions"
