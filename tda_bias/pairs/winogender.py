"""Winogender schemas (Rudinger et al. 2018): one sentence with a female and with a male pronoun.

``more`` has the pronoun of the gender that holds most jobs of the occupation (Bureau of Labor
Statistics 2015/16), ``less`` the other one. The type says whom the pronoun means: the occupation,
or the participant, for whom the occupation's gender should not matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from tda_bias.pairs.pair import Pair, checked
from tda_bias.pairs.sources import rows_of
from tda_bias.types import InputError

FILES = ("all_sentences.tsv", "occupations-stats.tsv")
LICENCE = "MIT, (c) 2018 Rachel Rudinger"
_ANSWERS = {"0": "occupation", "1": "participant"}


def female_shares(text: str, where: str) -> dict[str, dict[str, float]]:
    """Per occupation: per cent women by the Bureau of Labor Statistics and in text (Bergsma).

    Returns:
        ``bls`` and ``bergsma`` per occupation.

    Raises:
        InputError: if a column is missing or a share is no number.
    """
    columns = ("occupation", "bergsma_pct_female", "bls_pct_female")
    by_occupation = {}
    for row in rows_of(text, where, columns=columns, delimiter="\t"):
        try:
            shares = {"bls": float(row[columns[2]]), "bergsma": float(row[columns[1]])}
        except ValueError:
            raise InputError(f"{where}: the shares of {row['occupation']} are no numbers") from None
        by_occupation[row["occupation"]] = shares
    return by_occupation


def from_tables(
    sentences: str, shares: Mapping[str, Mapping[str, float]], where: str
) -> list[Pair]:
    """Pairs of the official table of sentences.

    Raises:
        InputError: if a row is of another form, a sentence lacks its other gender, or an
            occupation has no share.
    """
    by_name: dict[str, dict[str, str]] = {}
    for row in rows_of(sentences, where, columns=("sentid", "sentence"), delimiter="\t"):
        parts = row["sentid"].removesuffix(".txt").split(".")
        if len(parts) != 4 or parts[2] not in _ANSWERS:
            raise InputError(
                f"{where}: {row['sentid']!r} is not OCCUPATION.PARTICIPANT.ANSWER.GENDER"
            )
        by_name.setdefault(".".join(parts[:3]), {})[parts[3]] = row["sentence"]
    pairs = []
    for name, by_gender in by_name.items():
        occupation, _, answer = name.split(".")
        if occupation not in shares or not {"female", "male"} <= set(by_gender):
            raise InputError(f"{where}: {name} lacks a gender, or its occupation a share of women")
        most, fewest = ("female", "male") if shares[occupation]["bls"] > 50 else ("male", "female")
        pair = Pair(
            id=name,
            set="winogender",
            group=occupation,
            more=by_gender[most],
            less=by_gender[fewest],
            type=_ANSWERS[answer],
            source=f"{where} {name}",
        )
        pairs.append(checked(pair))
    return pairs
