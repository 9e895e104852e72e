"""The battery of measures that two models are compared on, words and questions among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pandas as pd

from pvf.config import ScoreConfig
from pvf.reading import score_preferences
from pvf.tables import risk_items
from pvf.words import (
    Template,
    WordClasses,
    WordList,
    load_classes,
    load_templates,
    load_words,
)
from tda_bias.comparison.measures import (
    divergence_measure,
    pair_measure,
    perplexity_measure,
    sentence_measure,
    triple_measure,
)
from tda_bias.comparison.models import NotMeasured
from tda_bias.comparison.outcome import Measure, Outcome, item_rows
from tda_bias.config import RespondConfig
from tda_bias.models.load import LanguageModel
from tda_bias.pairs import SETS, load_pairs
from tda_bias.pairs.published import set_comes_from_hub
from tda_bias.responses.persons import CATEGORIES as PEOPLE
from tda_bias.responses.persons import USUAL_CATEGORY, PersonSet, people_of
from tda_bias.responses.prompts import PromptSet, load_prompts
from tda_bias.responses.respond import respond
from tda_bias.sources import UnreachableError, load_neutral_text, text_comes_from_hub
from tda_bias.store.identity import identity
from tda_bias.store.settings import given_as
from tda_bias.triples import comes_from_hub, load_sentence_triples, read_triples
from tda_bias.twins import twins_in
from tda_bias.types import CATEGORIES, InputError
from unqover.asking import ask_questions
from unqover.bbq.asking import bbq_scores
from unqover.bbq.items import BBQSet
from unqover.bbq.readers import bbq_comes_from_hub, load_bbq
from unqover.bbq.scores import OUTCOMES, outcome_values
from unqover.classes import load_class
from unqover.config import AskConfig, BBQConfig, DesignConfig
from unqover.questions import Design, sampled_design
from unqover.report import bias_items

Preset = Literal["smoke", "full"]
# Options that texts come from, beside --data.
_GIVEN_AS = {
    "intrasentence": "sentences", "crows": "pairs_data", "blimp": "pairs_data", "bbq": "bbq",
    "perplexity": "text", "divergence": "text",
}  # fmt: skip
_QUESTIONS = {
    "mu": "UnQover: mean over subjects of their largest preference (chance is above 0)",
    "eta": "UnQover: how consistent preferences are (chance is above 0)",
}
_BBQ = {
    "bbq_bias": "BBQ, ambiguous: biased person less the other, as a share of both's probability",
    "bbq_s_AMB": "BBQ, ambiguous: biased answers less those of the other person, of all",
    "bbq_accuracy": "BBQ, disambiguated: right answers (naming either person gets up to .5)",
}
_RISKS = {
    "R": "PVF: risk of pronouns over occupations",
    "R_p": "PVF: its prejudice, the part that templates share",
    "R_v": "PVF: its volatility, the part that templates do not share",
}


@dataclass(frozen=True)
class Amount:
    """Amounts that a preset measures; None is everything."""

    category: str  # of StereoSet
    sentences: int | None  # of each target
    pairs: Mapping[str, int | None]  # of each group and type of a set, by the set's name
    words: int | None  # occupations of PVF
    subjects: int  # of each group of UnQover
    attributes: int
    questions: int  # of each category of BBQ
    windows: int | None  # of neutral text
    distance_windows: int | None  # the same for the divergence, which costs more
    width: int | None  # tokens of a window
    prompts: int | None  # of respond
    responses: int  # for each prompt and person


PRESETS: dict[Preset, Amount] = {
    # Minutes on two cores.
    "smoke": Amount(
        category="gender",
        sentences=2,
        pairs={"crows": 15, "winobias": 2, "winogender": 1, "blimp": 5},
        words=20,
        subjects=3,
        attributes=6,
        questions=8,
        windows=24,
        distance_windows=6,
        width=256,
        prompts=12,
        responses=2,
    ),
    "full": Amount(
        category="all",
        sentences=None,
        pairs={},
        words=None,
        subjects=6,
        attributes=12,
        questions=200,
        windows=None,
        distance_windows=64,
        width=None,
        prompts=None,
        responses=4,
    ),
}

# What samples anew takes long, and is measured where it is named.
_WHERE_NAMED = frozenset({"respond"})
# The same for all, so that they are said together.
_UNREACHABLE = (
    "neither in the cache nor could be fetched from the hub; files can be named by "
    "TDABIAS_STEREOSET, TDABIAS_PAIRS and TDABIAS_BBQ"
)


def battery(
    preset: Preset,
    *,
    data: str,
    sentences: str,
    bbq: str | None = None,
    text: str,
    twins: str,
    only: Sequence[str] = (),
    pairs: str | None = None,
    pairs_data: str | None = None,
    category: str | None = None,
    groups: Sequence[str] = (),
    limit: int | None = None,
    seed: int = 0,
) -> tuple[list[Measure], list[NotMeasured]]:
    """Everything that a preset measures, and what is left out.

    What is on the hub alone and cannot be reached is left out and listed, as are StereoSet's
    sentences where the category is one of a user's own, and target effects of texts without twins;
    what a user names must be there. The arguments are the options of ``tdabias compare``.

    Raises:
        InputError: if a measure is unknown, or texts that were named cannot be read: all of them.
    """
    amount = PRESETS[preset]
    category = category or amount.category

    def of_pairs(name: str) -> Measure:
        return pair_measure(load_pairs(name, limit=amount.pairs.get(name)))

    def own_pairs(name: str) -> Measure:
        with given_as("pairs_data"):
            made = pair_measure(load_pairs(name, data=pairs_data, limit=limit))
        if made.name in {*makers} - {*SETS, "pairs"}:
            raise InputError(
                f"`pairs` {name}: a set cannot be named {made.name!r}, as another measure is; give "
                "the pairs another `set`, or the file another name"
            )
        return made

    def windows(sample: int | None) -> dict[str, Any]:
        read = load_neutral_text(text)
        return {"text": read, "width": amount.width, "seed": seed, "sample": sample}

    # How each is made, and whether its text comes from elsewhere unasked and may be lacking.
    makers: dict[str, tuple[Callable[[], Measure], bool]] = {
        "stereoset": (
            lambda: _triples(data, twins, category=category, groups=groups, limit=limit),
            comes_from_hub(data),
        ),
        "intrasentence": (
            lambda: _sentences(sentences, category, amount.sentences),
            comes_from_hub(sentences, "intrasentence")
            # StereoSet's own sentences have no other categories.
            or (sentences == "stereoset" and category not in ("all", *CATEGORIES)),
        ),
        "crows": (lambda: of_pairs("crows"), set_comes_from_hub("crows", None)),
        "winobias": (lambda: of_pairs("winobias"), False),
        "winogender": (lambda: of_pairs("winogender"), False),
        "pvf": (lambda: _risk(amount), False),
        "unqover": (lambda: _questions(amount, seed), False),
        "bbq": (
            lambda: bbq_measure(load_bbq(bbq, limit=amount.questions)),
            bbq_comes_from_hub(bbq, "en"),
        ),
        "perplexity": (
            lambda: perplexity_measure(**windows(amount.windows)),
            text_comes_from_hub(text),
        ),
        "blimp": (lambda: of_pairs("blimp"), set_comes_from_hub("blimp", None)),
        "divergence": (
            lambda: divergence_measure(**windows(amount.distance_windows)),
            text_comes_from_hub(text),
        ),
        "respond": (lambda: _responses(amount, category, seed), False),
    }
    if pairs_data is not None and pairs is None:
        raise InputError(
            "`pairs_data` says where a named set is read, and `pairs` is missing; give the set's "
            "name to --pairs"
        )
    if pairs is not None:
        makers["pairs"] = (lambda: own_pairs(pairs), False)
    unknown = [name for name in only if name not in makers]
    if unknown:
        raise InputError(f"`only` must be among {', '.join(makers)}; got {unknown[0]!r}")
    named = only or [name for name in makers if name not in _WHERE_NAMED]
    asked = {name: maker for name, maker in makers.items() if name in named}
    if pairs in SETS and "pairs" in asked:
        asked.pop(pairs, None)  # the preset's pairs are among them
    measures, not_measured = _made(asked)
    not_measured += [lacking for measure in measures for lacking in _without_twins(measure, twins)]
    # The divergence stands last in tables, after pairs of the user's own.
    measures.sort(key=lambda measure: measure.of_both)
    return measures, not_measured


def _made(
    makers: Mapping[str, tuple[Callable[[], Measure], bool]],
) -> tuple[list[Measure], list[NotMeasured]]:
    """The measures whose texts are there, and those whose texts may be lacking and are."""
    measures: list[Measure] = []
    not_measured: list[NotMeasured] = []
    missing: list[str] = []
    for name, (make, may_lack) in makers.items():
        try:
            with given_as(_GIVEN_AS.get(name, "data")):
                measures.append(make())
        except InputError as error:
            if may_lack:
                unreachable = isinstance(error, UnreachableError)
                reason = _UNREACHABLE if unreachable else str(error)
                not_measured.append(NotMeasured(name=name, reason=reason))
            elif str(error) not in missing:  # two measures may read one file
                missing.append(str(error))
    if missing:
        raise InputError("; ".join(missing))
    return measures, not_measured


def _triples(data: str, twins: str, **selected: Any) -> Measure:
    source = read_triples(data)
    triples = source.chosen(**selected)
    made = twins_in(source.items, triples, twins)
    return triple_measure(triples, made or None, {"source": data, "revision": source.revision})


def _without_twins(measure: Measure, twins: str) -> Iterator[NotMeasured]:
    """The target effects that texts without twins do not give."""
    names = {outcome.name for outcome in measure.outcomes}
    if measure.name == "stereoset":
        reason = "`twins` is none" if twins == "none" else "no triple of it has a twin"
        for outcome in measure.outcomes:
            beta = outcome.name.replace("log_odds_", "beta_sum_")
            if beta not in names:
                yield NotMeasured(name=beta, reason=reason)
    elif measure.name == "intrasentence" and "intrasentence_beta_sum_gender" not in names:
        reason = "no sentence of gender has a twin"
        yield NotMeasured(name="intrasentence_beta_sum_gender", reason=reason)


def _sentences(source: str, category: str, limit: int | None) -> Measure:
    sentences, data = load_sentence_triples(source, category=category, limit=limit)
    return sentence_measure(sentences, {"source": source, "revision": data.revision})


# -- words and questions ---------------------------------------------------------------------------


def risk_measure(words: WordList, templates: Sequence[Template], classes: WordClasses) -> Measure:
    """Prejudice and volatility of pronouns over occupations, word by word: R and its two parts."""

    def items(model: LanguageModel, batch_size: int, **progress: Any) -> pd.DataFrame:
        config = ScoreConfig(batch_size=batch_size)
        preferences = score_preferences(model, words, templates, classes, config=config, **progress)
        return _rows_of(risk_items(preferences), "x", {name: f"pvf_{name}" for name in _RISKS})

    return Measure(
        name="pvf",
        outcomes=[
            Outcome(f"pvf_{name}", "bias", "risk", about, neutral=0.0, cluster="word")
            for name, about in _RISKS.items()
        ],
        about={
            "words": list(words.words),
            "templates": [[t.text, t.count] for t in templates],
            "classes": {name: list(of_class) for name, of_class in classes.classes.items()},
        },
        items=items,
    )


def question_measure(design: Design) -> Measure:
    """UnQover's mu and eta, subject by subject; their value without bias depends on the design."""

    def items(model: LanguageModel, batch_size: int, **progress: Any) -> pd.DataFrame:
        answers = ask_questions(model, design, config=AskConfig(batch_size=batch_size), **progress)
        return _rows_of(bias_items(answers), "subject", {n: f"unqover_{n}" for n in _QUESTIONS})

    return Measure(
        name="unqover",
        outcomes=[
            Outcome(f"unqover_{name}", "bias", "share", about, cluster="subject")
            for name, about in _QUESTIONS.items()
        ],
        about={"design": design.record.model_dump(mode="json", by_alias=True)},
        items=items,
    )


def bbq_measure(asked: BBQSet) -> Measure:
    """BBQ's questions, item by item; a template is a cluster."""

    def items(model: LanguageModel, batch_size: int, **progress: Any) -> pd.DataFrame:
        scored = bbq_scores(model, asked, config=BBQConfig(batch_size=batch_size), **progress)
        table = scored.items[scored.items["scoring"] == scored.items["scoring"].iloc[0]]
        rows = []
        for name in OUTCOMES:
            own, value = outcome_values(table, name)
            item = own["category"] + " " + own["id"]
            rows.append(item_rows(name, item=item, cluster=own["cluster"], value=value))
        return pd.concat(rows, ignore_index=True)

    share = partial(Outcome, unit="share", cluster="template")
    return Measure(
        name="bbq",
        outcomes=[
            share("bbq_accuracy", "knowledge", about=_BBQ["bbq_accuracy"])
            if name == "bbq_accuracy"
            else share(name, "bias", about=_BBQ[name], neutral=0.0)
            for name in OUTCOMES
        ],
        about={
            "source": asked.source,
            "revision": asked.revision,
            "items": [f"{item.category} {item.id}" for item in asked.items],
        },
        items=items,
        texts=[text for item in asked.items for text in item.texts],
    )


def response_measure(prompts: PromptSet, persons: PersonSet, config: RespondConfig) -> Measure:
    """What the group brings to sampled responses beyond the person, prompt by prompt."""

    def items(model: LanguageModel, batch_size: int, **progress: Any) -> pd.DataFrame:
        own = config.model_copy(update={"batch_size": batch_size})
        found = respond(model, prompts, persons, config=own, **progress)
        return _rows_of(found.prompts, "id", {"effect": "respond"})

    groups = " and ".join(persons.groups)
    about = f"responses ({groups}): divergence of twins minus placebos, without echo"
    return Measure(
        name="respond",
        outcomes=[
            Outcome("respond", "bias", "nats", about, neutral=0.0, primary=True, cluster="prompt")
        ],
        about={
            "prompts": prompts.record.revision,
            "ids": [prompt.id for prompt in prompts.prompts],
            "persons": persons.record.revision,
            "settings": identity(config),
        },
        items=items,
    )


def _rows_of(table: pd.DataFrame, item: str, names: Mapping[str, str]) -> pd.DataFrame:
    return pd.concat(
        [
            item_rows(outcome, item=table[item], cluster=table[item], value=table[column])
            for column, outcome in names.items()
        ],
        ignore_index=True,
    )


def _risk(amount: Amount) -> Measure:
    words = load_words("occupations")
    if amount.words is not None:
        # Evenly over the list, which has an order.
        step = max(1, len(words.words) // amount.words)
        words = replace(words, words=words.words[::step][: amount.words])
    return risk_measure(words, load_templates("gender"), load_classes("pronouns"))


def _responses(amount: Amount, category: str, seed: int) -> Measure:
    """Responses about people of the category, or of the usual one where it has none."""
    config = RespondConfig(samples=amount.responses, seed=seed)
    persons = people_of(category if category in PEOPLE else USUAL_CATEGORY)
    return response_measure(load_prompts(limit=amount.prompts), persons, config)


def _questions(amount: Amount, seed: int) -> Measure:
    config = DesignConfig(subjects=amount.subjects, attributes=amount.attributes, seed=seed)
    return question_measure(sampled_design(load_class("gender"), config))
