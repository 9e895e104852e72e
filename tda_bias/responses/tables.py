"""The tables of a run: responses, prompts, effects, decisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from tda_bias.config import RespondConfig
from tda_bias.responses.effects import (
    Divergences,
    difference_pvalues,
    differences,
    effect_row,
    impact_ratio,
    mean_columns,
    parted,
    response_effects,
)
from tda_bias.responses.prompt_correlations import prompt_correlations
from tda_bias.responses.result import DECISION, EFFECT_COLUMNS, HEADLINE, RATIO
from tda_bias.responses.word_shifts import word_table
from tda_bias.responses.written import Words
from tda_bias.stats.clusters import cluster_mean
from tda_bias.stats.resampling import SINGLE_PRECISION, beyond_rounding
from tda_bias.stats.seeds import generator


@dataclass(frozen=True)
class Answered:
    """Responses to one prompt, and what was read along them.

    Attributes:
        id: Of the prompt.
        kind: Of the prompt.
        persons: Its people: two of the first group, two of the second.
        whose: Which of them each response is about.
        number: Of a response among those about its person.
        seed: Of each response; -1 where the likeliest one was taken.
        ids: Its tokens, with the end token.
        pieces: The texts of these.
        ended: Whether it came to its end.
        kl: Divergence of the next-token distribution about its person from that about each one.
        echo: The part of it between counterpart tokens.
        log_prob: Of its tokens about each person. All three are NaN behind its end.
        choice: Log-probabilities of the good and the bad answer, about each person; NaN without.
    """

    id: str
    kind: str
    persons: tuple[str, ...]
    whose: Int[np.ndarray, " response"]
    number: Int[np.ndarray, " response"]
    seed: Int[np.ndarray, " response"]
    ids: Sequence[Sequence[int]]
    pieces: Sequence[Sequence[str]]
    ended: Sequence[bool]
    kl: Float[np.ndarray, "response person place"]
    echo: Float[np.ndarray, "response person place"]
    log_prob: Float[np.ndarray, "response person place"]
    choice: Float[np.ndarray, "person answer"]

    @property
    def log_ratio(self) -> Float[np.ndarray, "response person place"]:
        """Log-probability of a token about the response's own person less that about each."""
        own = np.take_along_axis(self.log_prob, self.whose[:, None, None], axis=1)
        return np.asarray(own - self.log_prob)

    def from_to(
        self, values: Float[np.ndarray, "response person place"]
    ) -> Float[np.ndarray, "person person"]:
        """Mean over the responses about each person of sums along them, to each person."""
        sums = np.nansum(values.astype(float), axis=2)
        return np.stack([sums[self.whose == person].mean(0) for person in range(4)])

    @property
    def tokens(self) -> float:
        """Tokens of a response, on average."""
        return float(np.mean([len(row) for row in self.pieces]))


@dataclass(frozen=True)
class _Measured:
    """Divergences between the people of every prompt, nats per response, by measure."""

    kinds: np.ndarray
    tokens: Float[np.ndarray, " prompt"]
    by_measure: dict[str, Divergences]

    @classmethod
    def of(cls, answered: Sequence[Answered]) -> _Measured:
        """Exact ones without echo, of echo and of both, and sampled log-ratios."""
        tokens = np.array([one.tokens for one in answered])
        read = {
            HEADLINE: [one.from_to(one.kl - one.echo) for one in answered],
            "echo": [one.from_to(one.echo) for one in answered],
            "both": [one.from_to(one.kl) for one in answered],
            "sampled": [one.from_to(one.log_ratio) for one in answered],
        }
        # Nats per token that rounding makes of equal distributions count as nothing.
        by_measure = {
            name: beyond_rounding(np.stack(values), tokens[:, None, None], share=SINGLE_PRECISION)
            for name, values in read.items()
        }
        return cls(np.array([one.kind for one in answered], object), tokens, by_measure)


def result_tables(
    answered: Sequence[Answered], words: Words, groups: Sequence[str], config: RespondConfig
) -> dict[str, pd.DataFrame]:
    """The tables that need no texts: all but ``responses``.

    ``effects`` has a row per measure and kind of prompts (``all`` first), with the columns of
    ``effect_row``: the response effect ``without echo``, of ``echo`` and of ``both`` together, the
    same ``sampled`` from log-ratios; of decisions the difference of log-odds and the impact ratio.
    Along greedy responses there are no tests and no intervals.
    """
    measured, decisions = _Measured.of(answered), _decisions(answered)
    rows = [*_effects(measured, config), *_decision_effects(answered, decisions, config)]
    effects = pd.DataFrame(rows, columns=[*EFFECT_COLUMNS])
    how: dict[str, Any] = {
        "n_permutations": config.n_permutations,
        "rng": generator(config.seed, "respond", "words"),
    }
    table = word_table(words.expected, words.words, words.echo, groups, **how)
    prompts = _prompts(answered, measured)
    correlations = prompt_correlations(prompts, decisions, confidence=config.confidence)
    if config.greedy:
        correlations[["low", "high"]] = np.nan
        effects[["low", "high", "p", "smallest"]] = np.nan
        table[["p", "q"]] = np.nan
    return {
        "effects": effects,
        "prompts": prompts,
        "decisions": decisions,
        "words": table,
        "correlations": correlations,
    }


def _effects(measured: _Measured, config: RespondConfig) -> Iterator[dict[str, Any]]:
    kinds = list(dict.fromkeys(measured.kinds))
    for measure, divergence in measured.by_measure.items():
        for kind in ["all", *(kinds if len(kinds) > 1 else [])]:
            chosen = np.flatnonzero((measured.kinds == kind) | (kind == "all"))
            row = effect_row(
                divergence[chosen],
                measured.tokens[chosen],
                n_permutations=config.n_permutations,
                confidence=config.confidence,
                rng=generator(config.seed, "respond", "effect", kind),
            )
            yield {"measure": measure, "kind": kind, **row}


def _prompts(answered: Sequence[Answered], measured: _Measured) -> pd.DataFrame:
    means = parted(measured.by_measure[HEADLINE])[:, 0]
    effects = {name: response_effects(values)[:, 0] for name, values in measured.by_measure.items()}
    return pd.DataFrame(
        {
            "id": [one.id for one in answered],
            "kind": [one.kind for one in answered],
            "first": [", ".join(one.persons[:2]) for one in answered],
            "second": [", ".join(one.persons[2:]) for one in answered],
            "tokens": measured.tokens,
            "twins": means[:, 0],
            "placebos": means[:, 1],
            "effect": effects[HEADLINE],
            "echo": effects["echo"],
            "sampled": effects["sampled"],
        }
    )


# -- decisions -------------------------------------------------------------------------------------


def _decisions(answered: Sequence[Answered]) -> pd.DataFrame:
    """Share of the good answer among both, by group, and how much both have of all."""
    rows = []
    for one in answered:
        if np.isnan(one.choice).any():
            continue
        log_odds = one.choice[:, 0] - one.choice[:, 1]
        p = 1 / (1 + np.exp(-log_odds))
        rows.append(
            {
                "id": one.id,
                "kind": one.kind,
                "p_first": p[:2].mean(),
                "p_second": p[2:].mean(),
                "difference": float(differences(log_odds[None])[0]),
                "mass": float(np.exp(one.choice).sum(1).mean()),
            }
        )
    return pd.DataFrame(rows, columns=["id", "kind", "p_first", "p_second", "difference", "mass"])


def _decision_effects(
    answered: Sequence[Answered], decisions: pd.DataFrame, config: RespondConfig
) -> Iterator[dict[str, Any]]:
    if decisions.empty:
        return
    asked = [one.choice for one in answered if not np.isnan(one.choice).any()]
    log_odds = np.stack([choice[:, 0] - choice[:, 1] for choice in asked])
    rng = generator(config.seed, "respond", "decisions")
    p = difference_pvalues(log_odds[:, :, None], config.n_permutations, rng)[0]
    of_prompts = cluster_mean(differences(log_odds))
    about: dict[str, Any] = {"kind": "all", "prompts": len(asked)}
    yield {"measure": DECISION, **about, **mean_columns(of_prompts, config.confidence), "p": p}
    first, second = (decisions[name].to_numpy(float) for name in ("p_first", "p_second"))
    yield {"measure": RATIO, **about, **impact_ratio(first, second, confidence=config.confidence)}


# -- responses -------------------------------------------------------------------------------------


def response_table(answered: Sequence[Answered], groups: Sequence[str]) -> pd.DataFrame:
    """Every response with its text, its seed, and what the other people change along it.

    Returns:
        One row per response: ``prompt kind person group number seed text tokens ended`` (``text``
        is without the end token, ``tokens`` with it); sums along
        it, nats, of the divergence without echo to people of the other group (``twins``) and to the
        other one of its own (``placebos``), their difference ``effect``, and the same of ``echo``;
        and by token ``ids``, ``pieces``, the ``moved`` nats (twins less placebos, without echo) and
        the ``log_ratio`` (about its own person against twins).
    """
    rows = []
    for one in answered:
        rest, ratio = one.kl - one.echo, one.log_ratio
        for i, person in enumerate(one.whose.tolist()):
            n = len(one.pieces[i])
            twins, placebo = _others(person)
            apart = rest[i, twins, :n].mean(0), rest[i, placebo, :n]
            echo = one.echo[i, twins, :n].mean(0) - one.echo[i, placebo, :n]
            rows.append(
                {
                    "prompt": one.id,
                    "kind": one.kind,
                    "person": one.persons[person],
                    "group": groups[person // 2],
                    "number": int(one.number[i]),
                    "seed": int(one.seed[i]),
                    "text": "".join(one.pieces[i][: n - 1] if one.ended[i] else one.pieces[i]),
                    "tokens": n,
                    "ended": bool(one.ended[i]),
                    "twins": float(apart[0].sum()),
                    "placebos": float(apart[1].sum()),
                    "effect": float((apart[0] - apart[1]).sum()),
                    "echo": float(echo.sum()),
                    "ids": list(one.ids[i]),
                    "pieces": list(one.pieces[i]),
                    "moved": (apart[0] - apart[1]).tolist(),
                    "log_ratio": ratio[i, twins, :n].mean(0).tolist(),
                }
            )
    return pd.DataFrame(rows)


def _others(person: int) -> tuple[list[int], int]:
    """The two people of the other group, and the other one of the same."""
    return ([2, 3], 1 - person) if person < 2 else ([0, 1], 5 - person)
