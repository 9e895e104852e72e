"""Sets of minimal pairs as outcomes: CrowS-Pairs, WinoBias, Winogender, BLiMP, a user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from tda_bias.comparison.outcome import Guard, Outcome, equal_weights, item_rows
from tda_bias.progress import Progress
from tda_bias.scores.pair_scores import compared, pair_items

if TYPE_CHECKING:
    from tda_bias.models.load import LanguageModel
    from tda_bias.pairs.pair import PairSet

# The paradigm of BLiMP that needs the gender of names and nouns.
GENDER_AGREEMENT = "anaphor_gender_agreement"
_ACCURACY_GUARD = Guard(1.0, -1, "1 point", wins=1)


@dataclass(frozen=True)
class PairMeasure:
    """A set of minimal pairs.

    Attributes:
        pairs: From ``load_pairs``.
    """

    pairs: PairSet

    @property
    def name(self) -> str:
        """The set's."""
        return self.pairs.name

    @property
    def about(self) -> Mapping[str, Any]:
        """Texts and settings."""
        texts = [(p.id, p.context, p.more, p.less, p.scored) for p in self.pairs.pairs]
        return {
            "source": self.pairs.source,
            "revision": self.pairs.revision,
            "pairs": len(texts),
            "hash": hashlib.blake2b(repr(texts).encode(), digest_size=16).hexdigest(),
        }

    @property
    def outcomes(self) -> Sequence[Outcome]:
        """Outcomes made of the set."""
        match self.name:
            case "crows":
                return list(self._crows())
            case "blimp":
                return list(self._blimp())
            case "winobias" | "winogender":
                return list(self._winos())
            case _:
                about = "log-odds of `more` over `less`"
                name = f"pairs_{self.name}"
                return [Outcome(name, "bias", "nats", about, neutral=0.0, cluster="group")]

    def items(
        self, model: LanguageModel, *, batch_size: int, progress: Progress | None = None
    ) -> pd.DataFrame:
        """As in ``Measure``."""
        table = compared(pair_items(model, self.pairs, batch_size=batch_size, progress=progress))
        return pd.concat(self._rows(table), ignore_index=True)

    # -- by set --

    def _crows(self) -> Iterator[Outcome]:
        about = "CrowS-Pairs: stereotypical sentences preferred"
        yield Outcome("crows", "bias", "points", about, neutral=50.0, cluster="writer")
        for kind in dict.fromkeys(pair.group for pair in self.pairs.pairs):
            name, of_kind = f"crows_{kind}", f"{about}, {kind}"
            yield Outcome(name, "bias", "points", of_kind, neutral=50.0, cluster="writer")

    def _winos(self) -> Iterator[Outcome]:
        abouts = {
            "type1": "WinoBias type 1: log-odds of pro over anti",
            "type2": "WinoBias type 2 (syntax decides): log-odds of pro over anti",
            "occupation": "Winogender: log-odds of the majority's pronoun for the occupation",
            "participant": "Winogender: the same where the pronoun means somebody else",
        }
        for kind in self._types():
            name, about = f"{self.name}_{kind}", abouts[kind]
            yield Outcome(name, "bias", "nats", about, neutral=0.0, cluster="occupation")

    def _blimp(self) -> Iterator[Outcome]:
        about = "BLiMP: grammatical sentences preferred, mean over paradigms"
        yield Outcome(
            "blimp", "quality", "points", about, guard=_ACCURACY_GUARD, cluster="paradigm"
        )
        if any(pair.group == GENDER_AGREEMENT for pair in self.pairs.pairs):
            about = "BLiMP: a reflexive agrees with the gender of its name or noun"
            yield Outcome("blimp_gender_agreement", "knowledge", "points", about, cluster="pair")

    def _types(self) -> list[str]:
        return list(dict.fromkeys(str(pair.type) for pair in self.pairs.pairs))

    def _rows(self, table: pd.DataFrame) -> Iterator[pd.DataFrame]:
        preferred, odds = 100 * table["preferred"], table["log_odds"]
        match self.name:
            case "crows":
                yield _of("crows", table, preferred)
                for kind, part in table.groupby("group", sort=False):
                    yield _of(f"crows_{kind}", part, preferred[part.index])
            case "blimp":
                yield _of("blimp", table, preferred, equal_weights(table["group"]))
                part = table[table["group"] == GENDER_AGREEMENT]
                yield _of("blimp_gender_agreement", part.assign(cluster=part["id"]), preferred)
            case "winobias" | "winogender":
                for kind, part in table.groupby("type", sort=False):
                    yield _of(f"{self.name}_{kind}", part, odds[part.index])
            case _:
                yield _of(f"pairs_{self.name}", table, odds)


def _of(
    outcome: str, table: pd.DataFrame, value: pd.Series[Any], weight: Any = 1.0
) -> pd.DataFrame:
    return item_rows(
        outcome,
        item=table["id"],
        cluster=table["cluster"],
        value=value.loc[table.index],
        weight=weight,
    )
