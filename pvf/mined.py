"""Mined templates: their counts while mining goes on, as a table, and against the published ten."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml
from scipy import stats

from pvf.templates import Template
from pvf.words import load_words
from tda_bias.runs.files import write_text
from tda_bias.types import InputError

if TYPE_CHECKING:
    pass

# -- corpora ---------------------------------------------------------------------------------------


@cache
def lexicon() -> dict[str, Any]:
    """Verbs, connectors, persons and names that mining goes by."""
    text = files("pvf.data").joinpath("mining.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    content["persons"] = {*content["persons"], *load_words("occupations").words}
    return content


@dataclass
class Mined:
    """Counts so far; saved between documents, so that a run can go on.

    Attributes:
        counts: Template to number of distinct sentences.
        documents: Template to number of documents.
        about: Template to connector, lemma and the hash of the first sentence.
        overt: Verbs seen with an overt "that".
        seen: Hashes of paragraphs and of sentences that count once.
        done: Documents finished.
        sentences: Distinct sentences parsed.
    """

    counts: Counter[str] = field(default_factory=Counter)
    documents: Counter[str] = field(default_factory=Counter)
    about: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    overt: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)
    done: int = 0
    sentences: int = 0

    def save(self, path: Path, settings: dict[str, Any]) -> None:
        """Write the state beside its settings."""
        state = {**vars(self), "seen": sorted(self.seen), "settings": settings}
        write_text(path, json.dumps(state))

    @classmethod
    def load(cls, path: Path, settings: dict[str, Any]) -> Mined:
        """Read a state, or begin.

        Raises:
            InputError: if the state belongs to other settings or cannot be read.
        """
        if not path.is_file():
            return cls()
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise InputError(f"{path} cannot be read; delete it or start over") from None
        if state.pop("settings") != settings:
            raise InputError(
                f"{path} is of a run with other settings; choose another --out, or start over with "
                "--no-resume"
            )
        counters = {name: Counter(state[name]) for name in ("counts", "documents", "overt")}
        about = {template: tuple(parts) for template, parts in state["about"].items()}
        return cls(**{**state, **counters, "about": about, "seen": set(state["seen"])})


def short_hash(text: str) -> str:
    """A mark by which a text is known again."""
    return hashlib.blake2b(" ".join(text.lower().split()).encode(), digest_size=8).hexdigest()


def mined_table(mined: Mined, *, min_count: int = 2, min_documents: int = 1) -> pd.DataFrame:
    """Templates that occur often enough and are grammatical before ``[Y]``, most frequent first.

    A template with "that" is kept if its verb reports, or was seen with an overt "that" in the
    corpus; no word of the sentences is kept but those of the template.

    Returns:
        Columns ``template count n_docs connector example``, the last the hash of a sentence.
    """
    reporting = set(lexicon()["reporting_verbs"])
    rows = []
    for template, count in mined.counts.items():
        connector, lemma, example = mined.about[template]
        licensed = connector != "that" or lemma in reporting or mined.overt[lemma] > 0
        if licensed and count >= min_count and mined.documents[template] >= min_documents:
            rows.append((template, count, mined.documents[template], connector, example))
    columns = ["template", "count", "n_docs", "connector", "example"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["count", "template"], ascending=[False, True], ignore_index=True)


# -- comparison ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    """How mined templates compare with published ones.

    Attributes:
        recall: Share of the published templates among the first 10, 50 and 100 mined.
        found: Published templates found at all.
        missing: The others.
        jaccard: Weighted: sum of the smaller weights over sum of the larger ones.
        spearman: Of the counts of common templates; NaN for fewer than 3.
        that_share: Weight of mined templates "The [X] VERB that [Y]".
    """

    recall: dict[int, float]
    found: int
    missing: tuple[str, ...]
    jaccard: float
    spearman: float
    that_share: float


def overlap(mined: pd.DataFrame, published: list[Template]) -> Overlap:
    """Compare with published templates; see ``Overlap``."""
    reference = {template.text: template.count for template in published}
    mined_counts = dict(zip(mined["template"], mined["count"].astype(float), strict=True))
    total_own, total = sum(mined_counts.values()) or 1.0, sum(reference.values())
    every = {*mined_counts, *reference}
    weights = [(mined_counts.get(t, 0.0) / total_own, reference.get(t, 0.0) / total) for t in every]
    common = [template for template in reference if template in mined_counts]
    counts = [mined_counts[t] for t in common], [reference[t] for t in common]
    varied = len(common) >= 3 and len(set(counts[0])) > 1
    spearman = float(stats.spearmanr(*counts).statistic) if varied else float("nan")
    that = [n for t, n in mined_counts.items() if t.endswith(" that [Y]") and len(t.split()) == 5]
    first = list(mined["template"])
    return Overlap(
        recall={k: len({*first[:k]} & {*reference}) / len(reference) for k in (10, 50, 100)},
        found=len(common),
        missing=tuple(template for template in reference if template not in mined_counts),
        jaccard=sum(min(pair) for pair in weights) / sum(max(pair) for pair in weights),
        spearman=spearman,
        that_share=sum(that) / total_own,
    )
