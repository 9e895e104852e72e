"""The one composition: a model and triples to the bias of every head."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeVar

import numpy as np

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import (
    N_SPLITS,
    GroupResult,
    joined_layers,
    layer_numbers,
    length_statistic,
    part_identity,
    random_halves,
)
from tda_bias.heads.items import ITEMS_ARRAYS, ItemDifferences
from tda_bias.heads.patterns import PatternReader, RowCheck
from tda_bias.heads.ranking_controls import controls
from tda_bias.heads.result import NULLS, HeadBias, HeadsRecord
from tda_bias.heads.smoothing import smoothing_record, statistics_of
from tda_bias.heads.summaries import kind_of, refuse_unfit_texts, sampler_of
from tda_bias.heads.tables import tables
from tda_bias.heads.texts import TokenizedGroup, texts_record, tokenized_groups
from tda_bias.models.hooked import LoadedModel, hooked_model_record
from tda_bias.stats.seeds import generator
from tda_bias.store.cache import Cache, Counter, OpenCache, Part
from tda_bias.twins import make_twins
from tda_bias.twins.told_apart import told_apart
from tda_bias.twins.twins import Twins
from tda_bias.types import InputError, Progress, Triple, in_order

T = TypeVar("T")


def head_bias(
    model: LoadedModel,
    triples: Sequence[Triple],
    *,
    twins: Twins | Literal["auto"] | None = "auto",
    config: HeadBiasConfig | None = None,
    progress: Progress | None = None,
    cache: OpenCache | None = None,
) -> HeadBias:
    """The topological bias statistic of every attention head, with its tests and controls.

    Args:
        model: From ``load_model``, or from ``bridge_model`` where it is in memory.
        triples: From ``load_triples``; each group is compared within itself.
        twins: The same texts about other targets (``tda_bias.twins``): with them every table also
            holds what is left of a triple when its twin is subtracted. ``auto`` makes them of the
            triples, where that is possible; None does without, and wording stays in every number.
        config: How to compute; the defaults are the recommended settings.
        progress: Called with (texts done, texts in all) after every forward pass.
        cache: Opens the cache of finished groups, given the settings that their numbers depend on;
            without it nothing is saved on the way.

    Returns:
        Tables, and the record of the run.

    Raises:
        InputError: if the model's tokenizer writes two texts of every triple alike, a group has
            fewer than 2 usable triples, a text is longer than the model's context, or patterns are
            NaN.
        ShareDone: if the groups are shared by several processes and another one gathers.

    Source: Varadarajan & Songdechakraiwut, sections 2 and 3; twins and tests are described in
    docs/method/heads.md.
    """
    if not isinstance(model, LoadedModel):
        raise InputError(
            "`model` must come from tda_bias.load_model or tda_bias.bridge_model, which compare "
            f"its patterns with its own; got {type(model).__name__}"
        )
    config, clock = config or HeadBiasConfig(), Stopwatch()
    if twins == "auto":
        twins = make_twins(triples) or None
    told = told_apart(model.token_ids, triples, twins, roles=2)
    twins = told.twins
    _refuse_idle_adjustment(config, twins)
    kind = kind_of(config.summary)
    with _evaluating(model):
        groups, left_out = tokenized_groups(model, triples, twins, places=kind.places)
        refuse_unfit_texts(groups, config, n_heads=model.n_heads * len(model.pattern_hooks))
        weights = model.weight_hash()
        identity = part_identity(config, model=model.name, weights=weights, dtype=model.dtype_name)
        kept = cache(identity) if cache is not None else Cache()
        contexts = [texts for group in groups for texts in (*group.contexts, *group.twins)]
        reader = PatternReader(
            model, batch_size=config.batch_size, probes=contexts, edges=config.edges
        )
        counter = Counter(sum(len(group.lengths) for group in groups), progress)
        smoothed = config.summary == "graph" and config.adjust == "none"
        measured = min(groups, key=TokenizedGroup.cost) if smoothed else None
        parts = [
            Part(
                f"{group.category}/{group.group}",
                group.cost(),
                group.depends_on,
                partial(
                    computed_group,
                    group,
                    reader,
                    config,
                    clock,
                    counter,
                    exact_too=group is measured,
                ),
            )
            for group in groups
        ]
        results, texts = [], 0
        for group, arrays in zip(groups, kept.each(parts), strict=True):
            results.append(GroupResult.from_arrays(group.category, group.group, arrays))
            texts += len(group.lengths)
            counter.reach(texts)
    with clock.stage("inference"):
        layers = tuple(model.pattern_hooks.values())
        tested = tables(results, config, model=model.name, layers=layers)
        stated = [
            controls(category, [r for r in results if r.category == category], tested, config)
            for category in in_order(result.category for result in results)
        ]
    record = HeadsRecord(
        model=hooked_model_record(model, weights=weights),
        remarks=told.remarks + model.special_remarks(told.texts),
        config=config,
        texts=texts_record(groups, left_out),
        twins=twins.record() if twins else None,
        groups=[
            {
                "category": group.category,
                "group": group.group,
                "triples": len(group.contexts),
                "depends_on": group.depends_on(),
                **result.provenance,
            }
            for group, result in zip(groups, results, strict=True)
        ],
        controls=stated,
        smoothing=next(filter(None, map(smoothing_record, results)), None),
        seconds={stage: round(seconds, 3) for stage, seconds in clock.seconds.items()},
    )
    items = ItemDifferences.of(results, [group.items for group in groups], layers)
    return HeadBias(
        tested.table, tested.combined, tested.category, tested.groups, record,
        extras={ITEMS_ARRAYS: items, NULLS: tested.nulls},
    )  # fmt: skip


def _refuse_idle_adjustment(config: HeadBiasConfig, twins: Twins | None) -> None:
    """Refuse an adjustment that would not change the ranking."""
    ranked = {"location"} | ({"evidence"} if twins else set())
    if config.adjust == "length" and config.rank_by in ranked:
        raise InputError(
            "`adjust` length changes the statistic of dispersion without twins, not what "
            f"`rank_by` {config.rank_by} ranks{' with twins' if twins else ''}: rank by relative, "
            "or leave the adjustment out (twins take length out too)"
        )


def computed_group(
    group: TokenizedGroup,
    reader: PatternReader,
    config: HeadBiasConfig,
    clock: Stopwatch,
    counter: Counter,
    *,
    exact_too: bool = False,
) -> dict[str, np.ndarray]:
    """Patterns, what is read of them, its inner products, and the numbers of a group.

    They are plain arrays; see ``GroupResult.from_arrays``. With ``exact_too`` they have S by exact
    distances beside.
    """
    model, layout = reader.model, group.layout
    sharing, reader.rows = reader.sharing, RowCheck(reader.rows.tolerance)
    layers = tuple(model.pattern_hooks.values())
    new_sampler = partial(
        sampler_of,
        n_tokens=group.lengths,
        places=group.token_places,
        attention=model.attention,
    )
    every_head = partial(new_sampler, layers=layers, n_heads=model.n_heads)
    sampler = every_head(config.summary, heads=config.heads)
    exact = every_head("graph-exact") if exact_too else None
    samplers = [sampler] if exact is None else [sampler, exact]
    for contexts, places in zip((group.contexts, group.twins), group.places(), strict=True):
        for batch in clock.each("forward", reader.read(contexts)):
            with clock.stage("topology"):
                for each in samplers:
                    each.add(batch.patterns, places[batch.text], batch.length)
            counter.add(len(batch.text))
            del batch  # not beside the next one: of a page there are gigabytes
    rng = generator(config.seed, "splits", group.category, group.group)
    halves = random_halves(layout.n, N_SPLITS, rng)
    lengths = group.n_tokens[:, :2] if config.adjust == "length" else None
    numbers = []
    for dims in clock.each("topology", sampler.layers()):
        with clock.stage("statistic"):
            numbers.append(
                [
                    layer_numbers(
                        gram.numpy(),
                        sums.numpy(),
                        layout,
                        halves,
                        lengths=lengths,
                        euclidean=sampler.euclidean,
                    )
                    for gram, sums in dims
                ]
            )
    with clock.stage("statistic"):
        arrays = joined_layers(numbers, len(layers))
        if exact is not None:
            arrays["exact"] = statistics_of(exact, layout, len(layers))
        of_lengths = length_statistic(
            new_sampler(config.summary, layers=(0,), n_heads=1, heads=["L0H0"]),
            group.lengths,
            layout,
            model.attention,
        )
    provenance = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "prefix_sharing": sharing,
        "row_sums": asdict(reader.rows),
    }
    return {
        **arrays,
        "n_tokens": group.n_tokens,
        "n_steps": np.array(sampler.n_steps),
        "length_statistic": of_lengths,
        "versions": layout.versions.context,
        "provenance": np.array(json.dumps(provenance)),
    }


# -- around the computation -----------------------------------------------------------------------


@contextmanager
def _evaluating(model: LoadedModel) -> Iterator[None]:
    """Dropout changes patterns: evaluation mode, and the mode before afterwards."""
    training = model.hf_model.training
    run = model.bridge if model.bridge is not None else model.hf_model
    run.eval()
    try:
        yield
    finally:
        run.train(training)


@dataclass
class Stopwatch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what the block takes."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def each(self, name: str, items: Iterable[T]) -> Iterator[T]:
        """Count what it takes to make each item, not what is done with it."""
        iterator = iter(items)
        while True:
            with self.stage(name):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
            del item  # it may be large, and the next one is made now
