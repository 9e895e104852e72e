"""What outcomes mean, in three sentences, and what they cannot say, in two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tda_bias.show.verdict import Control, Outcome

# Why a confounded outcome is no measure of bias.
_WHY: dict[Control, str] = {
    "length": "the preference turns round between longer and shorter texts",
    "order": "who is mentioned first explains more than who it is",
    "capability": "the model does no better than chance where the answer is given",
}
_MOST = 3


def meaning(model: str, outcomes: Sequence[Outcome]) -> list[str]:
    """What the outcomes of a model mean: three sentences at most."""
    return list(_sentences(model, outcomes))[:_MOST]


def _sentences(model: str, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The sentences, the most important first."""
    by_question = {
        question: [one for one in outcomes if one.question == question]
        for question in ("says", "heads", "change")
    }
    if by_question["says"]:
        yield _of_bias(model, by_question["says"])
    if by_question["change"]:
        yield _of_change(by_question["change"])
    confounded = [one for one in by_question["says"] if one.verdict.startswith("confounded")]
    if confounded:
        yield _of_confounded(confounded)
    if by_question["heads"]:
        yield _of_heads(by_question["heads"])
    wordings = [one for one in by_question["says"] if one.bars and one.bars[0].label == "wording"]
    if wordings:
        shares = _listed([f"{one.bars[0].share:.0%} ({one.name})" for one in wordings])
        yield (
            f"Of how preferences differ between texts {shares} is shared with the same texts about "
            "another target: wording, not bias."
        )


def _listed(names: Sequence[str]) -> str:
    """Names with commas and ``and``.

    Examples:
        >>> _listed(["a"]), _listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _of_bias(model: str, outcomes: Sequence[Outcome]) -> str:
    """Where a bias is clear, by its size, where it is uncertain, and where it cannot be told."""
    kept = [one for one in outcomes if not one.verdict.startswith("confounded")]
    clear, rest = [one for one in kept if one.is_clear], []
    parts = [
        f"{size} in {_listed([_with_side(one) for one in some])}"
        for size in ("large", "medium", "small", None)
        if (some := [one for one in clear if one.size == size])
    ]
    for word, said in (("uncertain", "uncertain in"), ("cannot say", "not to be told in")):
        if some := [one for one in kept if one.word == word]:
            rest.append(f"{said} {_listed([one.name for one in some])}")
    if parts:
        begin = f"A bias of {model} is clear, and {'; '.join(parts)}"
    else:
        begin = f"No bias of {model} is clear"
    return f"{begin}{'; it is ' if rest else ''}{', and '.join(rest)}."


def _with_side(one: Outcome) -> str:
    return f"{one.name} (against the stereotype)" if one.value < one.neutral else one.name


def _of_change(outcomes: Sequence[Outcome]) -> str:
    clear = [one for one in outcomes if one.is_clear]
    if not clear:
        return "No outcome is measurably changed."
    said = _listed(
        [f"{one.name.removeprefix('Change: ')} ({one.value:+.2f} {one.unit})" for one in clear]
    )
    left = len(outcomes) - len(clear)
    return f"Clearly changed: {said}{f'; {left} further outcomes are uncertain' * bool(left)}."


def _of_confounded(outcomes: Sequence[Outcome]) -> str:
    reasons = dict.fromkeys(control for one in outcomes for control in one.confounded)
    parts = [
        f"{_listed([one.name for one in outcomes if control in one.confounded])}: {_WHY[control]}"
        for control in reasons
    ]
    return f"No measure of bias here: {'; '.join(parts)}."


def _of_heads(outcomes: Sequence[Outcome]) -> str:
    parts = []
    for word, begin in (
        ("clear", "attention heads are found that treat {} differently ({})"),
        ("none found", "no attention head is found to treat {} differently"),
        ("cannot say", "there are too few texts to find a head for {}"),
    ):
        if some := [one for one in outcomes if one.word == word]:
            subjects = _listed([one.name.rpartition(": ")[2] for one in some])
            parts.append(begin.format(subjects, _listed([one.value_said for one in some])))
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def unsaid(outcomes: Sequence[Outcome]) -> list[str]:
    """What no outcome of the page can say: two sentences."""
    first = (
        "Nothing here is about generated text, harm in use, other targets or other languages, and "
        "no effect found is not the absence of bias."
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
