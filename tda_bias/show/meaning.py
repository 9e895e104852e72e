"""What outcomes mean, in three sentences, and what they cannot say, in two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tda_bias.show.text import counted, listed
from tda_bias.show.verdict import QUESTIONS, Control, Outcome, corrected

# Why a confounded outcome is no measure of bias.
_WHY: dict[Control, str] = {
    "length": "the preference turns round between longer and shorter texts",
    "order": "who is mentioned first explains more than who it is",
    "capability": "the model does no better than chance where the answer is given",
}
_MOST = 3
_CHANGE = "Change: "


def meaning(model: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What the outcomes of a model mean: three sentences at most, and one more per further model.

    ``clear`` is what remains after the correction that the page names; ``model`` is the name of
    those outcomes that have none of their own.
    """
    models = dict.fromkeys(one.model or model for one in outcomes)
    return list(_sentences(model, outcomes))[: _MOST + max(len(models) - 1, 0)]


def _sentences(model: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The sentences, the most important first."""
    outcomes = corrected(outcomes)
    says, heads, tests, change = (
        [one for one in outcomes if one.question == question] for question in QUESTIONS
    )
    for of_one in (_of_bias, _of_writing):
        kept = [one for one in says if one.is_bias == (of_one is _of_bias)]
        for name in dict.fromkeys(one.model or model for one in kept):
            yield of_one(name, [one for one in kept if (one.model or model) == name])
    if change:
        yield _of_change(change)
    confounded = [one for one in says if one.is_explained]
    if confounded:
        yield _of_confounded(confounded)
    if heads:
        yield _of_heads(heads)
    if tests:
        yield _of_tests(tests)
    wordings = [one for one in says if one.bars and one.bars[0].label == "wording"]
    if wordings:
        shares = listed([f"{one.bars[0].share:.0%} ({one.name})" for one in wordings])
        yield (
            f"Of how preferences differ between texts {shares} is shared with the same texts about "
            "another target: wording, not bias."
        )


def _bare(one: Outcome, begin: str = "") -> str:
    """The name without the model's, and without how names of its kind begin."""
    return one.name.removeprefix(f"{one.model}: ").removeprefix(begin)


def _of_model(one: Outcome, begin: str = "") -> str:
    """The same with the model after it, where there are several."""
    return f"{_bare(one, begin)} of {one.model}" if one.model else _bare(one, begin)


def _alone(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes that are clear by themselves, and not after correction."""
    return [one for one in outcomes if one.is_clear_alone]


def _clear_but_explained(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [one for one in outcomes if one.word == "clear" and one.is_explained]


def _of_bias(model: str, outcomes: Sequence[Outcome]) -> str:
    """Where a bias is clear, by its size, where it is uncertain, and where it cannot be told."""
    kept = [one for one in outcomes if not one.is_explained]
    clear = [one for one in kept if one.remains]
    alone = _alone(kept)
    parts = [
        f"{size} in {listed([_with_side(one) for one in some])}"
        for size in ("large", "medium", "small", None)
        if (some := [one for one in clear if one.size == size])
    ]
    rest = []
    if alone:
        names = listed([_with_side(one) for one in alone])
        rest.append(f"clear only if tested alone in {names}")
    for word, said in (("uncertain", "uncertain in"), ("cannot say", "not to be told in")):
        if some := [one for one in kept if one.word == word]:
            rest.append(f"{said} {listed([_bare(one) for one in some])}")
    if parts:
        begin = f"A bias of {model} is clear, and {'; '.join(parts)}"
    else:
        begin = f"No bias of {model} is clear{' after correction' if alone else ''}"
    return f"{begin}{'; it is ' if rest else ''}{', and '.join(rest)}."


def _with_side(one: Outcome) -> str:
    against = one.signed and one.value < one.neutral
    return f"{_bare(one)} (against the stereotype)" if against else _bare(one)


def _of_writing(model: str, outcomes: Sequence[Outcome]) -> str:
    """Whether what a model writes depends on the group: a difference, and not yet a bias."""
    said = {
        "depends on the group ({}), which is no harm by itself": [
            one for one in outcomes if one.remains
        ],
        "depends on the group ({}) if tested alone, not after correction": _alone(outcomes),
        "may or may not depend on the group ({})": [
            one for one in outcomes if one.word == "uncertain"
        ],
        "is too little to tell whether it depends on the group ({})": [
            one for one in outcomes if one.word == "cannot say"
        ],
    }
    parts = [
        what.format(listed([_bare(one, "Responses: ") for one in some]))
        for what, some in said.items()
        if some
    ]
    return f"What {model} writes {'; it '.join(parts)}."


def _of_change(outcomes: Sequence[Outcome]) -> str:
    """What is changed, what only if tested alone, and how much is left."""
    parts = [
        f"{begin} {listed([f'{_of_model(one, _CHANGE)} by {one.value_said}' for one in some])}"
        for begin, some in (
            ("clearly changed:", [one for one in outcomes if one.remains]),
            ("changed if tested alone, not after correction:", _alone(outcomes)),
            ("changed, but so is the language:", _clear_but_explained(outcomes)),
        )
        if some
    ]
    for word, said in (("uncertain", "is uncertain"), ("cannot say", "cannot be told")):
        number = sum(one.word == word for one in outcomes)
        if parts and number:
            said = said.replace("is", "are") if number > 1 else said
            parts.append(f"{counted(number, 'further outcome')} {said}")
    text = "; ".join(parts) or "no outcome is measurably changed"
    return f"{text[0].upper()}{text[1:]}."


def _of_confounded(outcomes: Sequence[Outcome]) -> str:
    reasons = dict.fromkeys(control for one in outcomes for control in one.confounded)
    parts = [
        f"{listed([one.name for one in outcomes if control in one.confounded])}: {_WHY[control]}"
        for control in reasons
    ]
    return f"No measure of bias here: {'; '.join(parts)}."


def _of_heads(outcomes: Sequence[Outcome]) -> str:
    parts = []
    for word, begin in (
        ("clear", "attention heads are found that treat {} differently ({})"),
        ("none found", "no attention head is found to treat {} differently ({})"),
        ("cannot say", "there are too few texts to find a head for {} ({})"),
    ):
        if some := [one for one in outcomes if one.word == word]:
            subjects = listed([_of_model(one, "Heads: ") for one in some])
            found = [_found(one) for one in some]
            # Of several subjects without any, the number is said once.
            found = found if word == "clear" else list(dict.fromkeys(found))
            parts.append(begin.format(subjects, listed(found)))
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _of_tests(outcomes: Sequence[Outcome]) -> str:
    """In which tests what was found of heads is more than chance."""
    said = {
        "told from chance: {}": [one for one in outcomes if one.remains],
        "only if tested alone: {}": _alone(outcomes),
        "not told from chance: {}": [
            one for one in outcomes if one.word in ("uncertain", "none found")
        ],
        "explained otherwise: {}": _clear_but_explained(outcomes),
        "too little to tell: {}": [one for one in outcomes if one.word == "cannot say"],
    }
    parts = [
        what.format(listed([_of_model(one) for one in some])) for what, some in said.items() if some
    ]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _found(one: Outcome) -> str:
    """How many heads survive, and what limits that."""
    limits = ["not after correction over outcomes"] * one.is_clear_alone + list(one.limits)
    return ", ".join([one.value_said, *limits])


def unsaid(outcomes: Sequence[Outcome]) -> list[str]:
    """What no outcome of the page can say: two sentences."""
    # What is written is measured where an outcome says so, which then is no measure of bias.
    measured = any(one.question == "says" and not one.is_bias for one in outcomes)
    written = "" if measured else "generated text, "
    first = (
        f"Nothing here is about {written}harm in use, other targets or other languages, and no "
        "effect found is not the absence of bias."
    )
    if any(one.question == "heads" for one in outcomes):
        return [
            first,
            "A head that treats texts differently need not cause what the model says: ablating it "
            "(tdabias ablate) tests that.",
        ]
    if any(one.word in ("uncertain", "cannot say") for one in outcomes):
        return [first, "Uncertain is not none: the interval says which effects are ruled out."]
    return [first, "Other texts can come out differently: a clear effect is one of these texts."]
