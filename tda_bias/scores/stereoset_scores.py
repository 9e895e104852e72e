"""A model's scores on both halves of StereoSet: one call and one result each.

Intersentence: triples, and what of the scores is about the target. Intrasentence: whole sentences,
and only the words in which they differ. Whole sentences are what StereoSet's authors score with
causal models, the differing words what they score with masked ones; both are given for either.
Their causal script puts the model's start token in front of every sentence (``start="bos"``) and
averages over tokens (scoring ``mean``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from tda_bias.config import SentenceConfig, StereoSetConfig
from tda_bias.models.language_model import model_record
from tda_bias.pairs.pair import Scored
from tda_bias.scores.beta import BETA, TWINS, beta_table, twin_table, with_beta
from tda_bias.scores.beta_parts import (
    QUANTITIES,
    mixed,
    part_columns,
    part_table,
    placebo_table,
    placebo_twins,
)
from tda_bias.scores.likelihood import Start, TextReader, TripleLikelihood, likelihoods_of
from tda_bias.scores.stereoset import (
    LENGTH_SPLIT,
    ROLE_COLUMNS,
    SCORES,
    item_table,
    length_split,
    scores,
    text_columns,
)
from tda_bias.scores.texts import Contrast, alike, split_triples, tokenize
from tda_bias.show.alike import alike_remark, refuse_all_alike
from tda_bias.store.cache import OpenCache, no_cache, texts_hash
from tda_bias.store.record import RecordPart, RunRecord
from tda_bias.store.result import Result, Table
from tda_bias.triples import SentenceTriple, triple_ids
from tda_bias.twins import PLACEBOS, Placebo, Twins, make_placebos, make_twins
from tda_bias.twins.told_apart import told_apart
from tda_bias.twins.twins import TEXTS, compared_texts
from tda_bias.types import InputError, Progress, Triple

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel

# -- triples ---------------------------------------------------------------------------------------


class ScoredTextsRecord(RecordPart):
    """The texts of a run: how many triples, and a hash of their token ids."""

    triples: int
    hash: str


class StereoSetRecord(RunRecord):
    """Everything needed to repeat a run.

    Attributes:
        kind: Of language model: causal, masked or seq2seq.
        texts: What was read.
        twins: How the twins came about; None for a run without.
        placebos: How the placebo twins came about, by placebo; None for a run without.
        confidence: Coverage of the intervals.
        seed: Of exchanges.
    """

    command: str = "stereoset"
    kind: str
    texts: ScoredTextsRecord
    twins: dict[str, Any] | None = None
    placebos: dict[str, dict[str, Any]] | None = None
    confidence: float
    seed: int


_ITEMS = ROLE_COLUMNS | dict.fromkeys(("id", "category", "group"), str)
# Field, file and columns of the tables that a run without twins, or without placebos, lacks.
TWIN_TABLES: Sequence[Table] = (
    ("twins", "twins.parquet", TWINS),
    ("beta", "beta.csv", BETA),
    (
        "beta_parts",
        "beta_parts.csv",
        {"category": str, "part": str, "items": int, "targets": int}
        | dict.fromkeys(("mean", "low", "high"), float),
    ),
    ("placebos", "placebos.parquet", TWINS | {"placebo": str, "choice": int}),
    (
        "placebo_beta",
        "placebo_beta.csv",
        dict.fromkeys(("scoring", "category", "kind", "choice"), str)
        | {"items": int, "targets": int}
        | {f"{name}{end}": float for name in QUANTITIES for end in ("", "_low", "_high")},
    ),
)


@dataclass(frozen=True, repr=False)
class StereoSetScores(Result):
    """Result of ``stereoset_scores``; tables of twins are empty in a run without.

    Attributes:
        items: Log-probabilities and tokens of continuations, the texts and, with twins, theirs
            (``TEXTS``) and beta with its parts:
            ``stereoset.item_table``, ``beta.with_beta``, ``beta_parts.part_columns``.
        scores: The official scores: ``stereoset.scores``.
        length_split: How often the stereotype wins by which text is longer.
        twins: One row per twin.
        beta: What is about the target: ``beta.beta_table``.
        beta_parts: ``beta_parts.part_table``.
        placebos: One row per placebo twin.
        placebo_beta: Beta beside its placebos: ``beta_parts.placebo_table``.
        record: How it came about.
    """

    COMMAND = "stereoset"
    RECORD = StereoSetRecord
    TABLES = (
        ("items", "items.parquet", _ITEMS),
        ("scores", "scores.csv", SCORES),
        ("length_split", "length_split.csv", LENGTH_SPLIT),
        *TWIN_TABLES,
    )
    OPTIONAL = frozenset(name for name, _, _ in TWIN_TABLES)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    twins: pd.DataFrame
    beta: pd.DataFrame
    beta_parts: pd.DataFrame
    placebos: pd.DataFrame
    placebo_beta: pd.DataFrame
    record: StereoSetRecord

    def _shown(self) -> Mapping[str, pd.DataFrame]:
        shown = {
            "official scores with intervals": (
                self.scores,
                ["scoring", "category", "items", "lms", "ss", "ss_low", "ss_high", "icat"],
            ),
            "what of the preference is about the target (beta)": (
                self.beta,
                ["scoring", "category", "items", "log_odds", "beta", "beta_low_targets",
                 "beta_high_targets", "p_targets", "p"],
            ),
        }  # fmt: skip
        return {
            caption: table.loc[table["group"] == "all", columns]
            for caption, (table, columns) in shown.items()
            if not table.empty
        }

    @property
    def has_twins(self) -> bool:
        """Tell whether any item was compared with a twin."""
        return not self.twins.empty


def stereoset_scores(
    model: LanguageModel,
    triples: Sequence[Triple],
    *,
    twins: Twins | Literal["auto"] | None = "auto",
    placebos: Mapping[Placebo, Twins] | Literal["auto"] = "auto",
    config: StereoSetConfig | None = None,
    progress: Progress | None = None,
    cache: OpenCache = no_cache,
) -> StereoSetScores:
    """Score a model on StereoSet: stereotype, language-model and idealised CAT score, and beta.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        triples: From ``load_triples``.
        twins: The same texts about other targets, which tell what of the preference is about the
            target (beta); ``auto``: made where they can be; None: none.
        placebos: From ``tda_bias.twins.make_placebos``: what of beta another wording or another
            role of the same gender changes too. ``auto``: made where there are twins. Only triples
            with twins take part.
        config: Texts per forward pass, coverage of the intervals, seed of exchanges.
        progress: Called with finished triples and all, twins, placebos and mixed texts included.
        cache: As in ``TextReader.read_saved``.

    Raises:
        InputError: if the model has no language-model head or is of another kind, a text is too
            long for it, there is no triple whose texts its tokenizer writes differently, or
            ``cache`` holds readings of something else.
        ShareDone: if the parts are shared by several processes and another one gathers.
    """
    config = config or StereoSetConfig()
    confidence, seed = config.confidence, config.seed
    if twins == "auto":
        twins = make_twins(triples) or None
    told = told_apart(model.token_ids, triples, twins)
    triples, twins = told.triples, told.twins
    if placebos == "auto":
        made = {name: make_placebos(triples, name) for name in PLACEBOS if twins}
        placebos = {name: own for name, own in made.items() if own}
    placebos = {
        name: differing
        for name, own in placebos.items()
        if (differing := told_apart(model.token_ids, triples, own).twins) is not None
    }
    twins_of = [twins.of(triple) if twins is not None else () for triple in triples]
    placebos_of = {
        name: [own.of(t) if several else () for t, several in zip(triples, twins_of, strict=True)]
        for name, own in placebos.items()
    }
    every = [*triples, *_further_texts(triples, twins_of, placebos_of)]
    reader = TextReader(model, config.batch_size, triples=True)
    named = {"triples": [Contrast.of(text) for text in every]}
    read = likelihoods_of(reader.read_saved(named, cache, progress=progress)["triples"])
    of_texts = dict(zip(map(_texts, every), read, strict=True))

    def likelihoods(of_items: Sequence[Sequence[Triple]]) -> list[list[TripleLikelihood]]:
        return [[of_texts[_texts(text)] for text in several] for several in of_items]

    texts = pd.DataFrame(map(compared_texts, triples, twins_of), columns=[*TEXTS])
    items = item_table(triples, read[: len(triples)]).assign(
        id=triple_ids(triples), **texts[[*TEXTS[:2]]]
    )
    tables = {name: pd.DataFrame(columns=[*columns]) for name, _, columns in TWIN_TABLES}
    tables["twins"] = twin_items = twin_table(likelihoods(twins_of))
    tables["placebos"] = placebo_items = placebo_twins(
        {name: likelihoods(own) for name, own in placebos_of.items()}
    )
    if not twin_items.empty:
        tables["beta"] = beta_table(items, twin_items, confidence=confidence, seed=seed)
        parts = part_columns(
            model.tokenizer, triples, twins_of, lambda triple: of_texts[_texts(triple)]
        )
        of_twins = texts[[*TEXTS[2:]]]
        items = pd.concat([with_beta(items, twin_items), of_twins, parts], axis=1)
        tables["beta_parts"] = part_table(items, confidence=confidence)
    if not placebo_items.empty:
        tables["placebo_beta"] = placebo_table(
            items, twin_items, placebo_items, confidence=confidence
        )
    ids = [split.ids for split in split_triples(model, every)]
    return StereoSetScores(
        items=items,
        scores=scores(items, confidence=confidence),
        length_split=length_split(items),
        **tables,
        record=StereoSetRecord(
            model=model_record(model, weights=model.weight_hash()),
            kind=model.kind,
            remarks=told.remarks + model.special_remarks(told.texts),
            texts=ScoredTextsRecord(triples=len(triples), hash=texts_hash(ids)),
            twins=None if twins is None else twins.only(triples).record(),
            placebos={name: own.only(triples).record() for name, own in placebos.items()},
            confidence=confidence,
            seed=seed,
        ),
    )


def _texts(triple: Triple) -> tuple[str, str, str]:
    return triple.context, triple.stereotype, triple.anti_stereotype


def _further_texts(
    triples: Sequence[Triple],
    twins_of: Sequence[Sequence[Triple]],
    placebos_of: Mapping[Placebo, Sequence[Sequence[Triple]]],
) -> list[Triple]:
    """Twins, mixtures of triples with their twins, and placebos: each once, without unrelated."""
    pairs = [(t, twin) for t, several in zip(triples, twins_of, strict=True) for twin in several]
    further = [
        *(twin for _, twin in pairs),
        *(text for one, twin in pairs for text in (mixed(one, twin), mixed(twin, one))),
        *(twin for of_items in placebos_of.values() for several in of_items for twin in several),
    ]
    known = set(map(_texts, triples))
    once = {_texts(text): replace(text, unrelated="") for text in further}
    return [text for texts, text in once.items() if texts not in known]


# -- whole sentences -------------------------------------------------------------------------------

_HOW = dict.fromkeys(("reading", "scored"), str)


class SentenceRecord(RunRecord):
    """Everything needed to repeat a run."""

    command: str = "stereoset intrasentence"
    kind: str
    texts: ScoredTextsRecord
    start: str
    confidence: float


@dataclass(frozen=True, repr=False)
class SentenceScores(Result):
    """Result of ``sentence_scores``.

    Attributes:
        items: One row per reading, scored words and item: ``reading scored id category group
            source``, ``log_prob_`` and ``tokens_`` of the three sentences; NaN where no token of a
            sentence is scored.
        scores: As ``stereoset.scores``, with ``reading scored`` and ``undefined``: items left out
            because no token of a sentence is scored.
        length_split: As ``stereoset.length_split``, with ``reading scored``.
        record: How it came about.
    """

    COMMAND = "stereoset intrasentence"
    RECORD = SentenceRecord
    TABLES = (
        ("items", "items.parquet", _ITEMS | _HOW),
        ("scores", "scores.csv", SCORES | _HOW | {"undefined": int}),
        ("length_split", "length_split.csv", LENGTH_SPLIT | _HOW),
    )
    SHOWN = (("scores, with intervals", "scores"),)

    items: pd.DataFrame
    scores: pd.DataFrame
    length_split: pd.DataFrame
    record: SentenceRecord


def sentence_scores(
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    *,
    config: SentenceConfig | None = None,
    progress: Progress | None = None,
    cache: OpenCache = no_cache,
) -> SentenceScores:
    """Stereotype, language-model and idealised CAT scores of StereoSet's intrasentence half.

    Raises:
        InputError: if there is no item, or as ``TextReader.read_saved``.
        ShareDone: as there.
    """
    if not sentences:
        raise InputError("there is no item to score")
    contrasts = [Contrast(sentence.texts()) for sentence in sentences]
    n_alike = alike(model, contrasts)
    refuse_all_alike(n_alike, len(contrasts), "item")
    config = config or SentenceConfig()
    start, confidence = config.start, config.confidence
    items = sentence_items(
        model, sentences, batch_size=config.batch_size, start=start, progress=progress, cache=cache
    )
    tables: list[pd.DataFrame] = []
    splits: list[pd.DataFrame] = []
    for how, part in items.groupby(list(_HOW), sort=False):
        about = dict(zip(_HOW, map(str, how), strict=True))
        defined = part.dropna(subset=[f"log_prob_{role}" for role in "sau"])
        if defined.empty:
            continue
        undefined = len(part) - len(defined)
        tables.append(scores(defined, confidence=confidence).assign(**about, undefined=undefined))
        splits.append(length_split(defined).assign(**about))
    if not tables:
        raise InputError("no item has a token that can be scored")
    ids = [contrast.ids for contrast in tokenize(model, contrasts)]
    return SentenceScores(
        items=items,
        scores=pd.concat(tables, ignore_index=True),
        length_split=pd.concat(splits, ignore_index=True),
        record=SentenceRecord(
            model=model_record(model, weights=model.weight_hash()),
            kind=model.kind,
            remarks=alike_remark(n_alike, len(contrasts), "item")
            + model.special_remarks([text for own in contrasts for text in own.texts]),
            texts=ScoredTextsRecord(triples=len(sentences), hash=texts_hash(ids)),
            start=start,
            confidence=confidence,
        ),
    )


def sentence_twins(sentences: Sequence[SentenceTriple]) -> dict[str, SentenceTriple]:
    """The same sentences about the other gender, by the name of the item.

    Only gender sentences that can be swapped have one: targets of other categories stand in the
    sentence with what is said of them and are not replaced.
    """
    gender = [sentence for sentence in sentences if sentence.category == "gender"]
    # The context of the triple is the stereotype: it has to change with the target.
    triples = [
        Triple(own.group, own.category, own.stereotype, *own.texts(), own.source) for own in gender
    ]
    made = make_twins(triples)
    names = ("group", "stereotype", "anti_stereotype", "unrelated")
    return {
        own.id: replace(own, **{name: getattr(twin, name) for name in names})
        for own, triple in zip(gender, triples, strict=True)
        for twin in made.of(triple)
    }


def sentence_items(
    model: LanguageModel,
    sentences: Sequence[SentenceTriple],
    *,
    batch_size: int = 32,
    start: Start = "tokenizer",
    which: Sequence[Scored] = ("whole", "difference"),
    progress: Progress | None = None,
    cache: OpenCache = no_cache,
) -> pd.DataFrame:
    """The items of ``SentenceScores``; ``which`` words are scored, one after the other."""
    named = {
        f"{scored} of sentences": [Contrast(s.texts(), None, scored, s.source) for s in sentences]
        for scored in which
    }
    reader = TextReader(model, batch_size, start)
    read = reader.read_saved(named, cache, progress=progress)
    rows = []
    for scored, readings in zip(which, read.values(), strict=True):
        for reading, values in readings.items():
            for sentence, texts in zip(sentences, values, strict=True):
                row = {"reading": reading, "scored": scored}
                row |= {n: getattr(sentence, n) for n in ("id", "category", "group", "source")}
                rows.append({**row, **text_columns(texts)})
    return pd.DataFrame(rows)
