"""What ``tdabias compare`` measures: the library's outcomes with those of words and questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tda_bias.comparison.outcome import Distance, Measure, Outcome, item_rows
from tda_bias.comparison.pair_measures import PairMeasure
from tda_bias.comparison.record import NotMeasured
from tda_bias.comparison.text_measures import DivergenceMeasure, PerplexityMeasure
from tda_bias.comparison.triple_measures import SentenceMeasure, TripleMeasure
from tda_bias.progress import Progress
from tda_bias.types import InputError

if TYPE_CHECKING:
    import pandas as pd

    from tda_bias.models.load import LanguageModel
    from unqover.design import Design

Preset = Literal["smoke", "full"]
HUB = "hub"


@dataclass(frozen=True)
class Amount:
    """How much a preset measures; None is everything.

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
    """Where texts are read.

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
    """What is measured, and what is not.

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
    builders = _builders(amount, sources)
    unknown = [name for name in only if name not in builders]
    if unknown:
        raise InputError(f"`only` must be among {', '.join(builders)}; got {unknown[0]!r}")
    made: list[Any] = []
    lacking: list[NotMeasured] = []
    for name, builder in builders.items():
        if only and name not in only:
            continue
        if name in _NO_SEQ2SEQ and kind not in ("causal", "masked"):
            lacking.append(NotMeasured(name=name, reason=f"not defined for {kind} models"))
            continue
        try:
            made.append(builder.make())
        except InputError as error:
            if not builder.from_hub:
                raise
            lacking.append(NotMeasured(name=name, reason=str(error)))
    distances = [measure for measure in made if isinstance(measure, DivergenceMeasure)]
    measures = [measure for measure in made if not isinstance(measure, DivergenceMeasure)]
    return Battery(measures, distances, lacking)


_NO_SEQ2SEQ = ("perplexity", "divergence", "unqover")


@dataclass(frozen=True)
class _Builder:
    make: Callable[[], Measure | Distance]
    from_hub: bool = False


def _builders(amount: Amount, sources: Sources) -> dict[str, _Builder]:
    from tda_bias.pairs import load_pairs

    def pairs(name: str, data: str | None) -> Callable[[], Measure]:
        limit = amount.pairs.get(name)
        return lambda: PairMeasure(load_pairs(name, data=data, limit=limit))

    return {
        "stereoset": _Builder(
            lambda: _triples(amount, sources), from_hub=sources.data == "stereoset"
        ),
        "intrasentence": _Builder(
            lambda: _sentences(amount, sources), from_hub=sources.sentences == "stereoset"
        ),
        "crows": _Builder(pairs("crows", sources.crows), from_hub=sources.crows == HUB),
        "winobias": _Builder(pairs("winobias", None)),
        "winogender": _Builder(pairs("winogender", None)),
        "pvf": _Builder(lambda: _risk(amount)),
        "unqover": _Builder(lambda: _questions(amount, sources.seed)),
        "perplexity": _Builder(
            lambda: PerplexityMeasure(**_text(amount, sources), sample=amount.windows),
            from_hub=sources.text == "wikitext2",
        ),
        "blimp": _Builder(pairs("blimp", sources.blimp), from_hub=sources.blimp == HUB),
        "divergence": _Builder(
            lambda: DivergenceMeasure(**_text(amount, sources), sample=amount.distance_windows),
            from_hub=sources.text == "wikitext2",
        ),
    }


def _triples(amount: Amount, sources: Sources) -> TripleMeasure:
    from tda_bias.triples import load_triples, source_revision
    from tda_bias.twins import load_twins, make_twins

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
    from tda_bias.pairs.stereoset import load_sentence_triples

    sentences, revision = load_sentence_triples(
        sources.sentences, category=amount.category, limit=amount.sentences
    )
    return SentenceMeasure(sentences, {"source": sources.sentences, "revision": revision})


def _text(amount: Amount, sources: Sources) -> dict[str, Any]:
    from tda_bias.pairs.neutral import load_neutral_text

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

    words: Any
    templates: Sequence[Any]
    classes: Any
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
        said = {
            "R": "PVF: risk of pronouns over occupations",
            "R_p": "PVF: its prejudice, the part that templates share",
            "R_v": "PVF: its volatility, the part that templates do not share",
        }
        return [
            Outcome(f"pvf_{name}", "bias", "risk", about, neutral=0.0, cluster="word")
            for name, about in said.items()
        ]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        from pvf.config import ScoreConfig
        from pvf.report import risk_items
        from pvf.score import score_preferences

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
        return _rows_of(risks, "x", {name: f"pvf_{name}" for name in ("R", "R_p", "R_v")})


@dataclass(frozen=True)
class QuestionMeasure:
    """UnQover's mu and eta of a small design, subject by subject.

    Attributes:
        design: The questions.
        name: Of the measure.
    """

    design: Design
    name: str = "unqover"
    _said: Mapping[str, str] = field(
        default_factory=lambda: {
            "mu": "UnQover: mean over subjects of their largest preference (chance is above 0)",
            "eta": "UnQover: how consistent preferences are (chance is above 0)",
        }
    )

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        return {"design": dict(self.design.record)}

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Mu and eta, whose value without bias depends on the design."""
        return [
            Outcome(f"unqover_{name}", "bias", "share", about, cluster="subject")
            for name, about in self._said.items()
        ]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        from unqover.ask import ask_questions
        from unqover.config import AskConfig
        from unqover.report import bias_items

        config = AskConfig(batch_size=batch_size)
        answers = ask_questions(model, self.design, config=config, progress=progress)
        return _rows_of(bias_items(answers), "subject", {n: f"unqover_{n}" for n in self._said})


def _rows_of(table: pd.DataFrame, item: str, names: Mapping[str, str]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(
        [
            item_rows(outcome, item=table[item], cluster=table[item], value=table[column])
            for column, outcome in names.items()
        ],
        ignore_index=True,
    )


def _risk(amount: Amount) -> RiskMeasure:
    from dataclasses import replace

    from pvf.templates import load_templates
    from pvf.words import load_classes, load_words

    words = load_words("occupations")
    if amount.words is not None:
        # Evenly over the list, which has an order.
        step = max(1, len(words.words) // amount.words)
        words = replace(words, words=words.words[::step][: amount.words])
    return RiskMeasure(words, load_templates("gender"), load_classes("pronouns"))


def _questions(amount: Amount, seed: int) -> QuestionMeasure:
    from unqover.classes import load_class
    from unqover.config import DesignConfig
    from unqover.design import sampled_design

    config = DesignConfig(subjects=amount.subjects, attributes=amount.attributes, seed=seed)
    return QuestionMeasure(sampled_design(load_class("gender"), config))
