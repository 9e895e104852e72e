"""The one composition of the package that needs a model: questions to saved answers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tda_bias.models.load import LanguageModel
from tda_bias.models.record import model_record
from tda_bias.progress import Progress
from tda_bias.runs.cache import open_parts
from tda_bias.runs.record import validated_part
from tda_bias.runs.work import ALONE, Job, Team
from tda_bias.types import InputError
from unqover.answers import Answers
from unqover.askers import Asked, Asker, Instance, asker
from unqover.config import AskConfig
from unqover.design import Design
from unqover.record import AnswersRecord, DesignRecord

# Pairs whose answers are saved together: a killed run loses no more than these.
_PAIRS = 64


def ask_questions(
    model: LanguageModel,
    design: Design,
    *,
    config: AskConfig | None = None,
    parts: Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    team: Team = ALONE,
    progress: Progress | None = None,
) -> Answers:
    """Ask a model every question of a design: two orders of mention, two polarities.

    Args:
        model: A causal or masked language model, or one that answers with a span.
        design: The questions.
        config: How they are asked.
        parts: Folder for finished parts, which a later call reuses; None keeps none.
        resume: Whether it may; else they are deleted first.
        overwrite: Whether parts under other settings are written over.
        team: The processes that share the parts.
        progress: Called with finished instances (a pair in one template and order) and all.

    Raises:
        InputError: if the model cannot be asked that way, a text is too long for it, its
            probabilities are undefined, or ``parts`` holds answers under other settings.
        ShareDone: where another process gathers.
    """
    config = config or AskConfig()
    chosen = asker(model, config)
    weights = model.weight_hash()
    identity = _settings(model, weights, config, chosen)
    store = open_parts(parts, identity, resume=resume, overwrite=overwrite, team=team)
    n_pairs, n_templates, n_attributes = design.shape
    log_prob = np.full((n_pairs, n_templates, n_attributes, 2, 2, 2), np.nan)
    mass = np.full((n_pairs, n_templates, n_attributes, 2, 2), np.nan)
    n_tokens = np.zeros((n_templates, len(design.subjects)), dtype=int)
    start, done = time.perf_counter(), 0
    computed: list[str] = []
    blocks = list(_blocks(design))
    jobs = [
        Job(
            f"{design.name} {block.name}",
            len(block.pairs) * int(block.asked.sum()),
            block.depends_on,
            partial(_asked, model, chosen, block, computed),
        )
        for block in blocks
    ]
    for block, arrays in zip(blocks, store.each(jobs), strict=True):
        index = np.ix_(block.pairs, np.array([block.template]), np.flatnonzero(block.asked))
        log_prob[index] = arrays["log_prob"][:, None]
        mass[index] = arrays["mass"][:, None]
        n_tokens[block.template, design.first[block.pairs]] = arrays["n_tokens"][:, 0]
        n_tokens[block.template, design.second[block.pairs]] = arrays["n_tokens"][:, 1]
        done += 2 * len(block.pairs)
        if progress is not None:
            progress(done, 2 * n_pairs * n_templates)
    record = AnswersRecord(
        model=model_record(model, weights=weights),
        kind=model.kind,
        ask=chosen.how,
        ask_config=config,
        design=validated_part(DesignRecord, design.record, "the design"),
        questions=design.n_questions,
        notes=chosen.notes,
        parts_reused=len(blocks) - len(computed),
        seconds=time.perf_counter() - start,
    )
    return as_answers(design, log_prob=log_prob, mass=mass, n_tokens=n_tokens, record=record)


def _asked(
    model: LanguageModel, asker: Asker, block: _Block, computed: list[str]
) -> dict[str, np.ndarray]:
    """The answers of a block, whose name is noted."""
    computed.append(block.name)
    arrays = block.arrays(asker.ask(block.instances()))
    if not np.isfinite(arrays["log_prob"]).all():
        raise InputError(f"`model` {model.name} gives undefined probabilities; use --dtype float32")
    return arrays


def as_answers(
    design: Design,
    *,
    log_prob: Float[np.ndarray, "pair template attribute order polarity subject"],
    mass: Float[np.ndarray, "pair template attribute order polarity"],
    n_tokens: Int[np.ndarray, "template subject"],
    record: AnswersRecord,
) -> Answers:
    """Arrays with the names of what was asked."""
    return Answers(
        name=design.name,
        factors=design.factors,
        subjects=tuple(s.name for s in design.subjects),
        levels=tuple(s.levels for s in design.subjects),
        first=design.first,
        second=design.second,
        templates=tuple(t.name for t in design.templates),
        attributes=tuple(a.name for a in design.attributes),
        kinds=tuple(a.kind for a in design.attributes),
        sensitive=tuple(a.sensitive for a in design.attributes),
        log_prob=log_prob,
        mass=mass,
        n_tokens=n_tokens,
        record=record,
    )


def _settings(
    model: LanguageModel, weights: str, config: AskConfig, asker: Asker
) -> dict[str, Any]:
    """Everything that answers depend on, beside their texts."""
    return {
        "model": model.name,
        "weights": weights,
        "dtype": model.dtype_name,
        "ask": asker.how,
        "length": config.length,
        "negation": config.negation,
        "share_prefix": config.share_prefix,
    }


@dataclass(frozen=True)
class _Block:
    """Some pairs in one template."""

    design: Design
    template: int
    pairs: np.ndarray

    @property
    def name(self) -> str:
        return f"template {self.template + 1} pairs from {self.pairs[0] + 1}"

    @property
    def asked(self) -> np.ndarray:
        return np.asarray(self.design.asked[self.template])

    def instances(self) -> list[Instance]:
        """Both orders of each pair, pair by pair."""
        design = self.design
        attributes = [
            a for a, is_asked in zip(design.attributes, self.asked, strict=True) if is_asked
        ]
        listed = []
        for pair in self.pairs:
            both = design.subjects[design.first[pair]], design.subjects[design.second[pair]]
            for mentioned in (both, both[::-1]):
                template = design.templates[self.template]
                listed.append(Instance(template, mentioned, both, attributes))
        return listed

    def depends_on(self) -> dict[str, str]:
        """Hash of everything that is asked."""
        asked = [
            (
                instance.context,
                [s.name for s in instance.candidates],
                instance.template,
                instance.attributes,
            )
            for instance in self.instances()
        ]
        return {"texts": hashlib.blake2b(repr(asked).encode(), digest_size=16).hexdigest()}

    def arrays(self, answers: list[Asked]) -> dict[str, np.ndarray]:
        """Answers of ``instances``: pair first, order behind the attribute."""
        both = zip(answers[::2], answers[1::2], strict=True)
        log_prob, mass, n_tokens = [], [], []
        for first, second in both:
            log_prob.append(np.stack([first.log_prob, second.log_prob], axis=1))
            mass.append(np.stack([first.mass, second.mass], axis=1))
            n_tokens.append(first.n_tokens[0, 0])
        return {
            "log_prob": np.stack(log_prob),
            "mass": np.stack(mass),
            "n_tokens": np.stack(n_tokens),
        }


def _blocks(design: Design) -> Iterator[_Block]:
    n_pairs, n_templates, _ = design.shape
    for template in range(n_templates):
        for first in range(0, n_pairs, _PAIRS):
            yield _Block(design, template, np.arange(first, min(first + _PAIRS, n_pairs)))
