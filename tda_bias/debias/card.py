"""The card of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from tda_bias.debias.summary import DebiasRecord, quantity_of
from tda_bias.show.audit import Audited, model_card
from tda_bias.show.table import Column, TableSpec
from tda_bias.show.tables import markdown
from tda_bias.show.text import Finding, counted
from tda_bias.store.record import RunRecord


def debias_card(
    about: Mapping[str, Any],
    row: Mapping[str, Any],
    record: DebiasRecord,
    name: str,
    groups: Set[str],
) -> str:
    """Text that tells a stranger on what the model was trained, what changed, and what did not."""
    run = RunRecord(
        command="debias", model=record.model, settings=record.settings, data=record.data
    )
    control = f"{record.protocol.n_random} sets of random heads."
    found = Finding(result=[record.verdict], control=[control])
    audited = Audited(name, run, [(record.category, found)], whom=", ".join(sorted(groups)))
    category, names = about["category"], about["heads"]
    trained = f"trained on {len(names)} of its attention heads" if names else "trained"
    title = f"{about['model']}, {trained} against {category} bias"
    body = _card_body(about, row, record)
    return model_card(about["model"], title, [audited], body=body, tags=("debiasing", category))


def _card_body(about: Mapping[str, Any], row: Mapping[str, Any], record: DebiasRecord) -> str:
    seen = about["targets"]
    whose = "this very model" if seen["test"] else "models of the other folds, trained alike"
    what, outside = "the whole model", ""
    if names := about["heads"]:
        shown = ", ".join(names) if len(names) <= 40 else f"all {len(names)}"
        what = "the heads"
        outside = f":\n  {shown}. Every other number is that of the base model, bit for bit"
    quantity, texts = quantity_of(record.twins), "with their twins"
    meaning = (
        "The target effect is the part of the preference for a stereotype that changes when the\n"
        "text is about another target. 0 is none."
    )
    if record.twins is None:
        texts = "without twins"
        meaning = "The log-odds of stereotype against anti-stereotype hold wording too."
    return f"""\
Made by `tdabias debias`, protocol `{about["protocol"]}`.

## What was trained

- How: {about["how"]}, {what} of the condition *{about["condition"]}*{outside}.
- Texts: {counted(about["items"], "item")} of {about["data"]} trained, category {about["category"]},
  {texts}. Targets that trained: {", ".join(seen["train"])}. Validation targets, which stopped
  the training: {", ".join(seen["validation"])}.
- Neutral text: {about["neutral"]}.

## What changed

On targets that the trainings compared never saw ({whose}):

{markdown(_changes(row, quantity))}

{meaning}

## What this does not show

- {about["verdict"]}
- Other biases, other targets, other kinds of text and generation were not looked at;
  `tdabias compare` looks at some of them. A model whose {quantity} is 0 here is not an
  unbiased model.
- Whether the model still tells genders apart where it should is a question of its own: measure it
  before use."""


def _changes(row: Mapping[str, Any], quantity: str) -> TableSpec:
    """What the training changed on unseen targets."""
    interval = f" ({row['low']:.3f} to {row['high']:.3f})" if row["low"] == row["low"] else ""
    before, after = (Column(name, f"{{{name}}}") for name in ("before", "after"))
    measured = (
        (f"{quantity}, nats per token", f"{row['before']:.3f}", f"{row['beta']:.3f}{interval}"),
        (f"root mean square of {quantity}", f"{row['rms_before']:.3f}", f"{row['rms']:.3f}"),
        ("language-model score", f"{row['lms_before']:.1f}", f"{row['lms']:.1f}"),
        ("perplexity of neutral text", "", f"{row['perplexity']:+.1f} %"),
    )
    rows = [dict(zip(("quantity", "before", "after"), texts, strict=True)) for texts in measured]
    return TableSpec("", rows, [Column("", "{quantity}", left=True), before, after])
