"""Single texts: heads' differences on every item, and patterns kept for people to look at.

A difference is that of the stereotype text minus the anti-stereotype text. Groups tell heads apart
by what they do on average; items by what they do each time. Both measures are in the units of their
group's tests:

    sum          sum of births (dimension 0) or of deaths (1), attention-weight units
    dispersion   the item's share of ``relative``: (q_anti - q_stereotype) over the group's mean of
                 (q_anti + q_stereotype); the mean over a group is its ``relative``
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.heads.contrast import contrast_matrix
from tda_bias.heads.group_result import GroupResult, part_of
from tda_bias.heads.group_statistic import ratio
from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import ContextTexts, tokenize
from tda_bias.store.cache import Counter
from tda_bias.store.result import RunWriter
from tda_bias.store.run import Run
from tda_bias.triples import load_triples
from tda_bias.twins.twins import TEXTS
from tda_bias.types import Attention, Edges, HeadId, InputError, Progress, Triple

if TYPE_CHECKING:
    from tda_bias.models.load import LoadedModel


MEASURES = ("sum", "dispersion")
ITEMS_TABLE, ITEMS_ARRAYS = "items.parquet", "items.npz"
ITEMS_COLUMNS: dict[str, type] = dict.fromkeys(("category", "group", "id", *TEXTS), str)

Measured = Mapping[str, Float[np.ndarray, "item dim layer head"]]


@dataclass(frozen=True)
class ItemDifferences:
    """The differences of every item of a run.

    Attributes:
        items: One row per item: ``category group id``, see ``triples.triple_ids``; its texts, and
            those of its first twin, empty without one.
        layers: The layers of the third axis below.
        raw: Measure to ``(item, dim, layer, head)``.
        twins: The same minus the mean over the item's twins, NaN without any; empty if the run had
            no twins.
    """

    items: pd.DataFrame
    layers: Sequence[int]
    raw: Measured
    twins: Measured

    @classmethod
    def of(
        cls,
        results: Sequence[GroupResult],
        items: Sequence[Sequence[Mapping[str, str]]],
        layers: Sequence[int],
    ) -> ItemDifferences:
        """From the numbers of every group, and ``id`` and texts of each of its contexts."""
        rows = [
            {"category": result.category, "group": result.group, **item}
            for result, known in zip(results, items, strict=True)
            for item in known
        ]
        raw, twins = zip(*(_measured(result) for result in results), strict=True)
        has_twins = any(result.has_twins for result in results)
        return cls(
            items=pd.DataFrame(rows),
            layers=layers,
            raw={name: np.concatenate([part[name] for part in raw]) for name in MEASURES},
            twins={name: np.concatenate([part[name] for part in twins]) for name in MEASURES}
            if has_twins
            else {},
        )

    # -- files --

    def write(self, run: RunWriter) -> None:
        """Add the table and the arrays, in single precision, to a run that is being written."""
        arrays = {"layers": np.array(self.layers)}
        for kind, measured in (("raw", self.raw), ("twins", self.twins)):
            arrays |= {f"{kind}.{name}": v.astype(np.float32) for name, v in measured.items()}
        run.table(ITEMS_TABLE, self.items)
        run.arrays(ITEMS_ARRAYS, arrays)

    @classmethod
    def read(cls, run: Run) -> ItemDifferences:
        """Read the files of ``write``; an ``InputError`` if one is not as it was written."""
        arrays = run.arrays(ITEMS_ARRAYS)
        raw, twins = (part_of(arrays, kind) for kind in ("raw", "twins"))
        return cls(run.table(ITEMS_TABLE, ITEMS_COLUMNS), arrays["layers"].tolist(), raw, twins)


def _measured(result: GroupResult) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """``ItemDifferences.raw`` and ``twins`` of one group."""
    statistic, versions = result.statistic, result.versions
    total = (statistic.q_stereotype + statistic.q_anti).mean(0)
    dispersion = ratio(statistic.q_anti - statistic.q_stereotype, total)
    between, twins = contrast_matrix(versions), {}
    for name, values in (("sum", result.item_sums), ("dispersion", result.contrast.dispersion)):
        contrasts = np.full((versions.n, *values.shape[1:]), np.nan)
        contrasts[versions.twinned] = np.tensordot(between, values, axes=(1, 0))
        twins[name] = contrasts
    total = result.contrast.dispersion_total / max(1, len(versions.twinned))
    twins["dispersion"] = ratio(twins["dispersion"], total)
    return {"sum": result.item_sums[: versions.n], "dispersion": dispersion}, twins


# -- the texts that carry a head's difference most -------------------------------------------------


def shares(items: ItemDifferences, *, twins: bool) -> Float[np.ndarray, "item layer head"]:
    """Each item's share of a head's relative dispersion, means over both dimensions.

    With ``twins`` what they add is subtracted; NaN for items without one.
    """
    measured = (items.twins if twins else items.raw)["dispersion"]
    return np.asarray(measured.mean(1), dtype=float)


def carriers(share: Float[np.ndarray, " item"], n: int) -> Int[np.ndarray, " n"]:
    """The n items that add most to a head's value, by size; fewer where fewer are defined."""
    size = np.abs(share)
    defined = np.flatnonzero(np.isfinite(size))
    return defined[np.argsort(-size[defined], kind="stable")][:n]


# -- patterns kept for people to look at -----------------------------------------------------------


EXAMPLE = "example.npz"
PATTERNS_TABLE, PATTERNS_ARRAYS = "patterns.parquet", "patterns.npz"
# A text of more tokens makes an unreadable picture, and a file of a megabyte.
MAX_TOKENS = 64
TEXT_ROLES = ("stereotype", "anti-stereotype", "twin stereotype", "twin anti-stereotype")
WANTED_COLUMNS: dict[str, type] = {
    "category": str, "layer": int, "head": int, "id": str, "role": str, "text": str,
}  # fmt: skip
PATTERNS_COLUMNS: dict[str, type] = {**WANTED_COLUMNS, "tokens": str, "length": int}


@dataclass(frozen=True)
class ExamplePattern:
    """Every head's pattern on one text; ``layers`` are the model's numbers of those it has."""

    model: str
    group: str
    text: str
    tokens: tuple[str, ...]
    attention: Attention
    layers: tuple[int, ...]
    patterns: Float[np.ndarray, "layer head query key"]

    @classmethod
    def read(cls, run: Run) -> ExamplePattern:
        """The pattern of a run; an ``InputError`` if it has no such file, or a damaged one."""
        saved = run.arrays(EXAMPLE)
        return cls(
            model=str(saved["model"]),
            group=str(saved["group"]),
            text=str(saved["text"]),
            tokens=tuple(saved["tokens"].tolist()),
            attention="causal" if saved["attention"] == "causal" else "bidirectional",
            layers=tuple(saved["layers"].tolist()),
            patterns=saved["patterns"],
        )

    @property
    def first(self) -> HeadId:
        """The first head: of the lowest layer with attention."""
        return HeadId(self.layers[0], 0)

    def of(self, head: HeadId) -> Float[np.ndarray, "query key"]:
        """The pattern of one head.

        Raises:
            InputError: if the model has no such head.
        """
        n_heads = self.patterns.shape[1]
        if head.layer not in self.layers or not 0 <= head.head < n_heads:
            raise InputError(
                f"{head} does not exist: {self.model} has heads 0 to {n_heads - 1} in the layers "
                f"{', '.join(map(str, self.layers))}"
            )
        return np.asarray(self.patterns[self.layers.index(head.layer), head.head])


def example_pattern(model: LoadedModel, text: Triple | str | None = None) -> ExamplePattern:
    """The patterns of a text, or of a triple's stereotype text.

    By default that of the first starter triple that fits the model: one harmless sentence, the same
    in every run. The first triple of a run's own data would make a picture of whatever it says.

    Raises:
        InputError: if the text is too long for the model, or every starter triple is.
    """
    if isinstance(text, str):
        triple = Triple("text", "text", "", text, "", "", source="the text")
    else:
        triple = text or _first_that_fits(model)
    tokens = tokenize(model.tokenizer, [triple], max_tokens=model.max_tokens, roles=("stereotype",))
    (batch,) = PatternReader(model, batch_size=1).read(tokens)
    ids = tokens[0].ids[0]
    return ExamplePattern(
        model=model.name,
        group=triple.group,
        text=triple.texts()[0],
        tokens=tuple(model.tokenizer.decode([token]).strip() for token in ids),
        attention=model.attention,
        layers=tuple(model.pattern_hooks.values()),
        patterns=batch.patterns[0].float().cpu().numpy(),
    )


def _first_that_fits(model: LoadedModel) -> Triple:
    triples = load_triples("starter")
    ids = model.tokenizer([triple.texts()[0] for triple in triples], verbose=False)["input_ids"]
    most = model.max_tokens
    fitting = (t for t, own in zip(triples, ids, strict=True) if most is None or len(own) <= most)
    return next(fitting, triples[0])


# -- the heads and texts that matter most ----------------------------------------------------------


@dataclass(frozen=True)
class KeptPatterns:
    """Patterns ``(query, key)`` in half precision, one per row of a table.

    Its columns are ``category layer head id role text tokens length``, tokens as a JSON list.
    """

    table: pd.DataFrame
    patterns: Sequence[np.ndarray]

    def write(self, run: RunWriter) -> None:
        """Add the table and the patterns, end to end, to a run that is being written."""
        flat = [pattern.ravel() for pattern in self.patterns]
        run.table(PATTERNS_TABLE, self.table)
        run.arrays(PATTERNS_ARRAYS, {"patterns": np.concatenate(flat or [np.zeros(0, np.float16)])})

    @classmethod
    def read(cls, run: Run) -> KeptPatterns:
        """Read the files of ``write``; an ``InputError`` if one is not as it was written."""
        table = run.table(PATTERNS_TABLE, PATTERNS_COLUMNS)
        flat = run.arrays(PATTERNS_ARRAYS)["patterns"]
        length = table["length"].to_numpy(int)
        ends = np.cumsum(length**2)
        parts = np.split(flat, ends[:-1]) if len(ends) else []
        patterns = [part.reshape(n, n) for part, n in zip(parts, length, strict=True)]
        return cls(table, patterns)


def kept_patterns(
    model: LoadedModel,
    wanted: pd.DataFrame,
    *,
    edges: Edges = "attention",
    batch_size: int = 8,
    progress: Progress | None = None,
) -> KeptPatterns:
    """The patterns that ``HeadBias.texts_to_keep`` asks for; each text is run once.

    Texts of more than ``MAX_TOKENS`` tokens are left out. ``progress`` is called with the texts
    done and all after every forward pass.
    """
    texts = list(dict.fromkeys(wanted["text"]))
    read = model.tokenizer(texts, verbose=False)["input_ids"] if texts else []
    known = zip(texts, read, strict=True)
    ids = {text: tokens for text, tokens in known if 0 < len(tokens) <= MAX_TOKENS}
    words = {
        text: json.dumps([model.tokenizer.decode([token]).strip() for token in tokens])
        for text, tokens in ids.items()
    }
    table = wanted[wanted["text"].isin(ids)].reset_index(drop=True)
    table["tokens"] = table["text"].map(words)
    table["length"] = [len(ids[text]) for text in table["text"]]
    table = table.astype(PATTERNS_COLUMNS)  # without a row no column knows its kind
    patterns = [np.zeros((0, 0), np.float16)] * len(table)
    rows_of, heads = table.groupby("text").indices, table[["layer", "head"]].to_numpy()
    reader = PatternReader(model, batch_size=batch_size, edges=edges)
    texts, layers = list(ids), list(model.pattern_hooks.values())
    counter = Counter(len(texts), progress)
    for batch in reader.read([ContextTexts((ids[text],), 0) for text in texts]):
        counter.add(len(batch.text))
        placed = zip(batch.text.tolist(), batch.length.tolist(), strict=True)
        for place, (number, n) in enumerate(placed):
            for row in rows_of[texts[number]]:
                layer, head = heads[row]
                pattern = batch.patterns[place, layers.index(layer), head, :n, :n]
                patterns[row] = pattern.half().cpu().numpy()
    return KeptPatterns(table, patterns)
