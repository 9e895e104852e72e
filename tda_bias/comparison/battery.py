"""The battery of measures that two models are compared on, words and questions among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from pvf.config import ScoreConfig
from pvf.report import risk_items
from pvf.score import score_preferences
from pvf.templates import Template, load_templates
from pvf.words import WordClasses, WordList, load_classes, load_words
from tda_bias.comparison.outcome import Distance, Measure, NotMeasured, Outcome, item_rows
from tda_bias.comparison.pair_measures import PairMeasure
from tda_bias.comparison.text_measures import DivergenceMeasure, PerplexityMeasure
from tda_bias.comparison.triple_measures import SentenceMeasure, TripleMeasure
from tda_bias.models.load import LanguageModel
from tda_bias.pairs import load_pairs
from tda_bias.pairs.neutral import load_neutral_text
from tda_bias.pairs.stereoset import load_sentence_triples
from tda_bias.progress import Progress
from tda_bias.triples import load_triples, source_revision
from tda_bias.twins import load_twins, make_twins
from tda_bias.types import InputError
from unqover.ask import ask_questions
from unqover.classes import load_class
from unqover.config import AskConfig, DesignConfig
from unqover.design import Design, sampled_design
from unqover.report import bias_items

Preset = Literal["smoke", "full"]
HUB = "hub"
# Measures that need a model that reads texts from left to right, or with gaps.
_NO_SEQ2SEQ = ("perplexity", "divergence", "unqover")
_QUESTIONS = {
    "mu": "UnQover: mean over subjects of their largest preference (chance is above 0)",
    "eta": "UnQover: how consistent preferences are (chance is above 0)",
}
_RISKS = {
    "R": "PVF: risk of pronouns over occupations",
    "R_p": "PVF: its prejudice, the part that templates share",
    "R_v": "PVF: its volatility, the part that templates do not share",
}


@dataclass(frozen=True)
class Amount:
    """Amounts that a preset measures; None is everything.

    Attributes:
        category: Of StereoSet.
        triples: Of each target.
        sentences: Of each target.
        pairs: Of each group and type of a set, by the set's name.
        words: Occupations of PVF.
        subjects: Of each group of UnQover.
        attributes: Of UnQover.
        windows: Of neutral text.
        distance_windows: The same for the divergence, which costs more.
        width: Tokens of a window.
    """

    category: str
    triples: int | None
    sentences: int | None
    pairs: Mapping[str, int | None]
    words: int | None
    subjects: int
    attributes: int
    windows: int | None
    distance_windows: int | None
    width: int | None


PRESETS: dict[Preset, Amount] = {
    # Minutes on two cores.
    "smoke": Amount(
        category="gender",
        triples=None,
        sentences=2,
        pairs={"crows": 15, "winobias": 2, "winogender": 1, "blimp": 5},
        words=20,
        subjects=3,
        attributes=6,
        windows=24,
        distance_windows=6,
        width=256,
    ),
    "full": Amount(
        category="all",
        triples=None,
        sentences=None,
        pairs={},
        words=None,
        subjects=6,
        attributes=12,
        windows=None,
        distance_windows=64,
        width=None,
    ),
}


@dataclass(frozen=True)
class Sources:
    """Sources of the texts.

    Attributes:
        data: Triples, as for ``tdabias stereoset``.
        sentences: StereoSet's intrasentence half.
        crows: CrowS-Pairs.
        blimp: BLiMP; what ships if None.
        text: Neutral text.
        twins: How twins come about.
        groups: Only these targets of the triples.
        limit: At most so many triples of each target.
        seed: Of whatever is drawn.
    """

    data: str
    sentences: str
    crows: str
    blimp: str | None
    text: str
    twins: str
    groups: tuple[str, ...] = ()
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Battery:
    """Measures, and what is left out.

    Attributes:
        measures: Of each model.
        distances: Of both together.
        not_measured: What could not be read, or does not fit the model.
    """

    measures: Sequence[Measure]
    distances: Sequence[Distance]
    not_measured: Sequence[NotMeasured]


def battery(amount: Amount, sources: Sources, *, kind: str, only: Sequence[str]) -> Battery:
    """Everything that a preset measures.

    What is on the hub alone and cannot be reached is left out and listed; what a user names must be
    there.

    Args:
        amount: How much.
        sources: Where texts are.
        kind: Of the models: causal, masked, seq2seq.
        only: Names of measures; all if empty.

    Raises:
        InputError: if a measure is unknown, or a text that was named cannot be read.
    """
    limit = amount.pairs.get
    makers: dict[str, tuple[Callable[[], Any], bool]] = {
        "stereoset": (lambda: _triples(amount, sources), sources.data == "stereoset"),
        "intrasentence": (lambda: _sentences(amount, sources), sources.sentences == "stereoset"),
        "crows": (
            lambda: PairMeasure(load_pairs("crows", data=sources.crows, limit=limit("crows"))),
            sources.crows == HUB,
        ),
        "winobias": (lambda: PairMeasure(load_pairs("winobias", limit=limit("winobias"))), False),
        "winogender": (
            lambda: PairMeasure(load_pairs("winogender", limit=limit("winogender"))),
            False,
        ),
        "pvf": (lambda: _risk(amount), False),
        "unqover": (lambda: _questions(amount, sources.seed), False),
        "perplexity": (
            lambda: PerplexityMeasure(**_text(amount, sources), sample=amount.windows),
            sources.text == "wikitext2",
        ),
        "blimp": (
            lambda: PairMeasure(load_pairs("blimp", data=sources.blimp, limit=limit("blimp"))),
            sources.blimp == HUB,
        ),
        "divergence": (
            lambda: DivergenceMeasure(**_text(amount, sources), sample=amount.distance_windows),
            sources.text == "wikitext2",
        ),
    }
    unknown = [name for name in only if name not in makers]
    if unknown:
        raise InputError(f"`only` must be among {', '.join(makers)}; got {unknown[0]!r}")
    measures: list[Measure] = []
    distances: list[Distance] = []
    not_measured: list[NotMeasured] = []
    for name, (make, is_from_hub) in makers.items():
        if only and name not in only:
            continue
        if name in _NO_SEQ2SEQ and kind not in ("causal", "masked"):
            not_measured.append(NotMeasured(name=name, reason=f"not defined for {kind} models"))
            continue
        try:
            made = make()
        except InputError as error:
            if not is_from_hub:
                raise
            not_measured.append(NotMeasured(name=name, reason=str(error)))
        else:
            (distances if isinstance(made, Distance) else measures).append(made)
    return Battery(measures, distances, not_measured)


def _triples(amount: Amount, sources: Sources) -> TripleMeasure:
    limit = sources.limit or amount.triples
    triples = load_triples(
        sources.data, category=amount.category, groups=sources.groups, limit=limit
    )
    twins = None
    if sources.twins != "none":
        whole = load_triples(sources.data)
        made = make_twins(whole) if sources.twins == "auto" else load_twins(sources.twins, whole)
        twins = made.only(triples) or None
    about = {"source": sources.data, "revision": source_revision(sources.data)}
    return TripleMeasure(triples, twins, about)


def _sentences(amount: Amount, sources: Sources) -> SentenceMeasure:
    sentences, revision = load_sentence_triples(
        sources.sentences, category=amount.category, limit=amount.sentences
    )
    return SentenceMeasure(sentences, {"source": sources.sentences, "revision": revision})


def _text(amount: Amount, sources: Sources) -> dict[str, Any]:
    text = load_neutral_text(sources.text)
    return {"text": text, "width": amount.width, "seed": sources.seed}


# -- words and questions ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RiskMeasure:
    """Prejudice and volatility of pronouns over occupations, word by word.

    Attributes:
        words: The occupations.
        templates: With their counts.
        classes: The pronouns.
        name: Of the measure.
    """

    words: WordList
    templates: Sequence[Template]
    classes: WordClasses
    name: str = "pvf"

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {
            "words": list(self.words.words),
            "templates": [[t.text, t.count] for t in self.templates],
            "classes": {name: list(words) for name, words in self.classes.classes.items()},
        }

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """R and its two parts."""
        return [
            Outcome(f"pvf_{name}", "bias", "risk", about, neutral=0.0, cluster="word")
            for name, about in _RISKS.items()
        ]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        risks = risk_items(
            score_preferences(
                model,
                self.words,
                self.templates,
                self.classes,
                config=ScoreConfig(batch_size=batch_size),
                progress=progress,
            )
        )
        return _rows_of(risks, "x", {name: f"pvf_{name}" for name in _RISKS})


@dataclass(frozen=True)
class QuestionMeasure:
    """UnQover's mu and eta of a small design, subject by subject.

    Attributes:
        design: The questions.
        name: Of the measure.
    """

    design: Design
    name: str = "unqover"

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {"design": dict(self.design.record)}

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Mu and eta, whose value without bias depends on the design."""
        return [
            Outcome(f"unqover_{name}", "bias", "share", about, cluster="subject")
            for name, about in _QUESTIONS.items()
        ]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        config = AskConfig(batch_size=batch_size)
        answers = ask_questions(model, self.design, config=config, progress=progress)
        return _rows_of(bias_items(answers), "subject", {n: f"unqover_{n}" for n in _QUESTIONS})


def _rows_of(table: pd.DataFrame, item: str, names: Mapping[str, str]) -> pd.DataFrame:
    return pd.concat(
        [
            item_rows(outcome, item=table[item], cluster=table[item], value=table[column])
            for column, outcome in names.items()
        ],
        ignore_index=True,
    )


def _risk(amount: Amount) -> RiskMeasure:
    words = load_words("occupations")
    if amount.words is not None:
        # Evenly over the list, which has an order.
        step = max(1, len(words.words) // amount.words)
        words = replace(words, words=words.words[::step][: amount.words])
    return RiskMeasure(words, load_templates("gender"), load_classes("pronouns"))


def _questions(amount: Amount, seed: int) -> QuestionMeasure:
    config = DesignConfig(subjects=amount.subjects, attributes=amount.attributes, seed=seed)
    return QuestionMeasure(sampled_design(load_class("gender"), config))
