"""Published sets of pairs: how each is laid out, and where it is read.

- CrowS-Pairs (Nangia et al. 2020): stereotypical sentences and the same about another group. Pairs
  of one writer resemble each other: the writer is what resamples draw. Its data statement says that
  it must not be used to train models.
- CrowS-Pairs revised, in French (Neveol et al. 2022) and in Dutch: the same pairs in three files of
  one form, without writers. Pairs that cannot be compared are left out by name.
- WinoBias (Zhao et al. 2018): ``more`` is the sentence whose pronoun goes with the stereotype of
  the occupation that it means. In type 1 only knowledge of the world says whom it means; in type 2
  syntax does.
- Winogender (Rudinger et al. 2018): ``more`` has the pronoun of the gender that holds most jobs of
  the occupation (Bureau of Labor Statistics 2015/16). The type says whom the pronoun means: the
  occupation, or the participant, for whom the occupation's gender should not matter.
- BLiMP (Warstadt et al. 2020): ``more`` is grammatical, ``less`` is not, in 67 paradigms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tda_bias.pairs.pair import Pair, PairSet, are_equal, checked
from tda_bias.script import words
from tda_bias.show.text import left_out
from tda_bias.sources import (
    HUB,
    commit_of,
    hash_of,
    hub_split,
    located,
    of_environment,
    packaged,
    text_of,
    visible_text,
)
from tda_bias.store.files import json_objects, read_content, rows_of
from tda_bias.store.record import PACKAGED
from tda_bias.types import InputError

Data = str | Path | None
Row = tuple[str, Mapping[str, Any]]


def _published(
    name: str, pairs: Iterable[Pair], source: str, revision: str | None, **known: Any
) -> PairSet:
    """A published set as it is, slips included: pairs whose two texts are one are left out.

    Raises:
        InputError: if a pair lacks something, or none is left.
    """
    every = list(pairs)
    different = tuple(checked(pair) for pair in every if not are_equal(pair))
    if every and not different:
        checked(every[0])
    equal = [pair.source for pair in every if are_equal(pair)]
    remarks = left_out(equal, "pair", "two equal texts")
    return PairSet(name, different, source, revision, remarks=remarks, **known)


# -- CrowS-Pairs -----------------------------------------------------------------------------------

_CROWS_FILE = "crows_pairs_anonymized.csv"
_CROWS_COLUMNS = ("sent_more", "sent_less", "stereo_antistereo", "bias_type")
# The repository itself holds a script, which `datasets` no longer runs; the hub's own conversion
# is a branch of it.
_CROWS_HUB, _CROWS_REVISION = "nyu-mll/crows_pairs", "refs/convert/parquet"


def _crows(data: Data) -> PairSet:
    data = data or of_environment(_CROWS_FILE)
    if data is None or data == HUB:
        split = hub_split(_CROWS_HUB, None, "test", revision=_CROWS_REVISION)
        # Numbers of classes stand for their names.
        classes = {name: f.names for name, f in split.features.items() if hasattr(f, "names")}
        rows = [
            (
                f"{_CROWS_HUB} row {number}",
                {"id": str(number), **row, **{c: names[row[c]] for c, names in classes.items()}},
            )
            for number, row in enumerate(split)
        ]
        return _published("crows", crows_pairs(rows), HUB, commit_of(split))
    (path,) = located(data, _CROWS_FILE)
    text = text_of(path)
    # The first column has no name; it numbers the rows.
    rows = [
        (f"{path} row {row.get('') or number}", {"id": row.get("") or str(number), **row})
        for number, row in enumerate(rows_of(text, str(path), columns=_CROWS_COLUMNS))
    ]
    return _published("crows", crows_pairs(rows), str(path), hash_of(text))


# Sets of the same pairs in several languages, each with the file that holds it.
_CROWS_LANGUAGES = {
    "crows-fr": "crows_french.csv",
    "crows-nl": "crows_dutch.csv",
    "crows-en-revised": "crows_eng.csv",
}


def _crows_of_language(name: str, data: Data) -> PairSet:
    file = _CROWS_LANGUAGES[name]
    data = data or of_environment(file)
    if data is None or data == HUB:
        raise InputError(
            f"`pairs` {name} is read from its own file; give --data PATH with {file}, or put it "
            "into the folder that TDABIAS_PAIRS names"
        )
    (path,) = located(data, file)
    text, content = _text_and_bytes(path)
    rows = rows_of(text, str(path), columns=("id", *_CROWS_COLUMNS))
    whole = [row for row in rows if row["sent_more"].strip() and row["sent_less"].strip()]
    # Nothing is known of writers: pairs are the sample.
    own = (
        (f"{path} pair {row['id']}", {**row, "anon_writer": f"pair {row['id']}"}) for row in whole
    )
    made = _published(name, crows_pairs(own, name), str(path), hash_of(content))
    lacking = [f"{path} pair {row['id']}" for row in rows if row not in whole]
    remarks = *made.remarks, *left_out(lacking, "pair", "no text on one side")
    return replace(made, remarks=remarks)


def _text_and_bytes(path: Path) -> tuple[str, bytes]:
    """A file in UTF-8, or, as the Dutch one is, in Mac Roman with some characters in UTF-8."""
    try:
        return read_content(path, setting="data", named=(HUB,))
    except InputError:
        content = path.read_bytes() if path.is_file() else b""
        if not content.isascii() and path.name == _CROWS_LANGUAGES["crows-nl"]:
            text = re.sub(
                rb"\xc3[\x80-\xbf]", lambda two: two[0].decode().encode("mac_roman"), content
            ).decode("mac_roman")
            return text.replace("\r\n", "\n").replace("\r", "\n"), content
        raise


def set_comes_from_hub(name: str, data: Data) -> bool:
    """Tell whether a named set is read from the hub."""
    ships = name != "crows" or of_environment(_CROWS_FILE) is not None
    return data == HUB or (data is None and not ships)


def crows_pairs(rows: Iterable[Row], name: str = "crows") -> tuple[Pair, ...]:
    """Pairs of rows of CrowS-Pairs, each with where it stands and a field ``id``."""
    pairs = []
    for where, row in rows:
        more, less, direction, bias = (
            visible_text(row.get(column), column, where) for column in _CROWS_COLUMNS
        )
        writer = row.get("anon_writer")
        pair = Pair(
            id=str(row["id"]),
            set=name,
            group=bias,
            more=more,
            less=less,
            type=direction,
            scored="shared",
            cluster=None if writer is None else str(writer),
            source=where,
        )
        pairs.append(pair)
    return tuple(pairs)


# -- WinoBias --------------------------------------------------------------------------------------

_PRONOUNS = {
    "he": "male", "him": "male", "his": "male", "himself": "male",
    "she": "female", "her": "female", "hers": "female", "herself": "female",
}  # fmt: skip
_WINOBIAS_FILES = [
    f"{side}_stereotyped_{kind}.txt" for kind in ("type1", "type2") for side in ("pro", "anti")
]
_BRACKETED = re.compile(r"\[([^\]]*)\]")
_NUMBERED = re.compile(r"^\s*(\d+)\s+(.*\S)\s*$")


def _winobias(data: Data) -> PairSet:
    source = PACKAGED if data is None else str(data)
    if source == PACKAGED:
        texts = [packaged("winobias", f"{name}.dev") for name in _WINOBIAS_FILES]
    else:
        texts = [text_of(path) for path in _winobias_paths(Path(source))]
    where = "WinoBias" if data is None else source
    pairs = [
        *_winobias_pairs(texts[0], texts[1], "type1", where),
        *_winobias_pairs(texts[2], texts[3], "type2", where),
    ]
    uneven = frozenset(pair.id for pair in pairs if _is_uneven(pair))
    if 2 * len(uneven) > len(pairs):
        raise InputError(
            f"{where}: {len(uneven)} of {len(pairs)} pairs differ in more than their pronouns: the "
            "pro- and the anti-stereotypical files do not hold the same sentences"
        )
    return _published("winobias", pairs, source, hash_of(*texts), uneven=uneven)


def _winobias_paths(data: Path) -> list[Path]:
    """The four files of one part of the set (dev or test), which must be in one folder.

    Of a folder with several whole parts it is the first by name.
    """
    first = located(data, *(f"{name}.*" for name in _WINOBIAS_FILES))[0]
    parts = sorted(path.suffix for path in first.parent.glob(f"{_WINOBIAS_FILES[0]}.*"))
    missing = []
    for part in parts:
        paths = [first.parent / f"{name}{part}" for name in _WINOBIAS_FILES]
        if all(path.is_file() for path in paths):
            return paths
        missing += [path.name for path in paths if not path.is_file()]
    raise InputError(
        f"`data` {str(data)!r} has no file {missing[0]}; of each part of WinoBias it needs all of "
        f"{', '.join(name + parts[0] for name in _WINOBIAS_FILES)}"
    )


def _winobias_pairs(pro: str, anti: str, kind: str, where: str) -> list[Pair]:
    """Pairs of two files of the official form, line by line."""
    first, second = ([line for line in text.splitlines() if line.strip()] for text in (pro, anti))
    if len(first) != len(second):
        raise InputError(
            f"{where}: {len(first)} pro-stereotypical lines and {len(second)} anti-stereotypical "
            f"ones of {kind}; they must be the same sentences"
        )
    pairs = []
    for number, (line, other) in enumerate(zip(first, second, strict=True), start=1):
        here = f"{where} {kind} line {number}"
        (name, more), (number_of_less, less) = _numbered(line, here), _numbered(other, here)
        if name != number_of_less:
            raise InputError(
                f"{here}: sentence {name} of the pro-stereotypical file stands beside sentence "
                f"{number_of_less} of the anti-stereotypical one; they must be the same sentences"
            )
        mentions = [mention.strip() for mention in _BRACKETED.findall(line)]
        named = [mention for mention in mentions if mention.lower() not in _PRONOUNS]
        if not named:
            raise InputError(f"{here}: no occupation stands in brackets")
        pair = Pair(
            id=f"{kind}-{name}",
            set="winobias",
            group=re.sub(r"^(the|a|an)\s+", "", named[0].lower()),
            more=more,
            less=less,
            type=kind,
            source=here,
        )
        pairs.append(pair)
    return pairs


def _numbered(line: str, where: str) -> tuple[str, str]:
    """Number and sentence of a line, without the brackets."""
    match = _NUMBERED.match(line)
    if match is None:
        raise InputError(f"{where}: expected a number and a sentence, got {line[:60]!r}")
    return match[1], re.sub(r"[\[\]]", "", match[2])


def _words_of(pair: Pair) -> tuple[list[str], list[str]]:
    more, less = ([text[a:b].lower() for a, b in words(text)] for text in (pair.more, pair.less))
    return more, less


def _is_uneven(pair: Pair) -> bool:
    """Tell whether the two sentences differ in more than pronouns: a slip of the source."""
    more, less = _words_of(pair)
    if len(more) != len(less):
        return True
    return any(a != b and not {a, b} <= set(_PRONOUNS) for a, b in zip(more, less, strict=True))


def gender_of_more(pair: Pair) -> str:
    """The gender of the pronoun that ``more`` has in place of the other: ``male`` or ``female``."""
    more, less = _words_of(pair)
    swapped = [_PRONOUNS[word] for word in more if word in _PRONOUNS and word not in less]
    return swapped[0] if swapped else "unclear"


# -- Winogender ------------------------------------------------------------------------------------

_WINOGENDER_FILES = ("all_sentences.tsv", "occupations-stats.tsv")
_ANSWERS = {"0": "occupation", "1": "participant"}


def _winogender(data: Data) -> PairSet:
    source = PACKAGED if data is None else str(data)
    if source == PACKAGED:
        sentences, shares = (packaged("winogender", name) for name in _WINOGENDER_FILES)
    else:
        sentences, shares = (text_of(path) for path in located(source, *_WINOGENDER_FILES))
    where = "Winogender" if data is None else source
    pairs = _winogender_pairs(sentences, _female_shares(shares, where), where)
    return _published("winogender", pairs, source, hash_of(sentences, shares))


def female_shares() -> dict[str, dict[str, float]]:
    """Per occupation per cent women, by the Bureau of Labor Statistics and in text (Bergsma).

    Returns:
        ``bls`` and ``bergsma`` per occupation of Winogender.
    """
    return _female_shares(packaged("winogender", _WINOGENDER_FILES[1]), "Winogender")


def _female_shares(text: str, where: str) -> dict[str, dict[str, float]]:
    columns = ("occupation", "bergsma_pct_female", "bls_pct_female")
    by_occupation = {}
    for row in rows_of(text, where, columns=columns, delimiter="\t"):
        try:
            shares = {"bls": float(row[columns[2]]), "bergsma": float(row[columns[1]])}
        except ValueError:
            raise InputError(f"{where}: the shares of {row['occupation']} are no numbers") from None
        by_occupation[row["occupation"]] = shares
    return by_occupation


def _winogender_pairs(
    sentences: str, shares: Mapping[str, Mapping[str, float]], where: str
) -> tuple[Pair, ...]:
    """Pairs of the official table of sentences."""
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
        pairs.append(pair)
    return tuple(pairs)


# -- BLiMP -----------------------------------------------------------------------------------------

_BLIMP_HUB = "nyu-mll/blimp"


def _blimp(data: Data) -> PairSet:
    if data == HUB:
        rows: list[Row] = []
        for name in paradigms():
            split = hub_split(_BLIMP_HUB, name, "train")
            rows += [(f"{_BLIMP_HUB} {name} {number}", row) for number, row in enumerate(split)]
        return _published("blimp", _blimp_pairs(rows), HUB, commit_of(split))
    if data is None or data == PACKAGED:
        # A sample of 20 of the 1,000 pairs of each paradigm.
        text = packaged("blimp", "sample.csv")
        names = {"UID": "paradigm", "pairID": "id", "sentence_good": "good", "sentence_bad": "bad"}
        rows = [
            (f"BLiMP {row['paradigm']} {row['id']}", {k: row[name] for k, name in names.items()})
            for row in rows_of(text, "sample.csv", columns=tuple(names.values()))
        ]
        return _published("blimp", _blimp_pairs(rows), PACKAGED, hash_of(text))
    path = Path(data)
    texts, rows = [], []
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        texts.append(text_of(file))
        lines = [(where, line) for where, line in json_objects(texts[-1], str(file))]
        if any("sentence_good" in line for _, line in lines):
            rows += lines
    if not rows:
        raise InputError(f"`data` {str(data)!r} holds no JSON Lines of BLiMP")
    return _published("blimp", _blimp_pairs(rows), str(data), hash_of(*texts))


def paradigms() -> dict[str, dict[str, str]]:
    """The 67 paradigms: phenomenon, and accuracies of ``ngram lstm txl gpt2`` on all 1,000."""
    name = "paradigms.csv"
    rows = rows_of(packaged("blimp", name), name, columns=("paradigm", "term", "gpt2"))
    return {row["paradigm"]: row for row in rows}


def _blimp_pairs(rows: Iterable[Row]) -> tuple[Pair, ...]:
    """Pairs of rows, each with where it stands; the type is the paper's phenomenon."""
    known = paradigms()
    pairs = []
    for where, row in rows:
        paradigm, good, bad = (
            visible_text(row.get(name), name, where)
            for name in ("UID", "sentence_good", "sentence_bad")
        )
        number = row.get("pairID", row.get("pair_id"))
        pair = Pair(
            id=f"{paradigm}-{number}",
            set="blimp",
            group=paradigm,
            more=good,
            less=bad,
            # Two paradigms carry another phenomenon in the data than in the published table.
            type=known[paradigm]["term"] if paradigm in known else row.get("linguistics_term"),
            source=where,
        )
        pairs.append(pair)
    return tuple(pairs)


SETS: dict[str, Callable[[Data], PairSet]] = {
    "crows": _crows,
    "winobias": _winobias,
    "winogender": _winogender,
    "blimp": _blimp,
    **{name: partial(_crows_of_language, name) for name in _CROWS_LANGUAGES},
}
# Sets that have CrowS-Pairs' own score, and its authors' wish not to be trained on.
CROWS = ("crows", *_CROWS_LANGUAGES)
