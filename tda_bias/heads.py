"""The one composition: a model and triples to the bias of every head."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tda_bias.config import HeadBiasConfig
from tda_bias.models.load import LoadedModel
from tda_bias.models.record import attention_record, model_record
from tda_bias.patterns.capture import PatternBatch, PatternReader, prefix_sharing
from tda_bias.patterns.passes import TokenizedTriple, texts_record, tokenize
from tda_bias.records.parts import PartStore, texts_hash
from tda_bias.records.record import package_versions
from tda_bias.resampling import generator
from tda_bias.results.head_bias import HeadBias
from tda_bias.results.tables import (
    category_table,
    combined_table,
    controls,
    group_row,
    head_table,
    in_order,
)
from tda_bias.statistic.group_result import GroupResult, group_result
from tda_bias.topology.sampler import MIN_TOKENS, GroupSampler
from tda_bias.types import InputError, Triple

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

Progress = Callable[[int, int], None]
GroupKey = tuple[str, str]


def head_bias(
    model: LoadedModel | TransformerBridge,
    triples: Sequence[Triple],
    *,
    config: HeadBiasConfig | None = None,
    progress: Progress | None = None,
    store: Callable[[dict[str, Any]], PartStore] | None = None,
) -> HeadBias:
    """The topological bias statistic of every attention head, with its tests and controls.

    Args:
        model: From ``load_model``. A bare bridge is taken with its own tokenizer, which may put a
            token in front that Hugging Face's does not.
        triples: From ``load_triples``; each group is compared within itself.
        config: How to compute; the defaults are the recommended settings.
        progress: Called with (texts done, texts in all) after every forward pass.
        store: Given the settings that the saved numbers depend on, returns the store in which
            finished groups are kept and looked up; without it nothing is saved on the way.

    Returns:
        Tables, and the record of the run.

    Raises:
        InputError: if a group has fewer than 2 usable triples, a text is longer than the model's
            context, or patterns are NaN.

    Source: Varadarajan & Songdechakraiwut, sections 2 and 3; the tests are described in
    docs/method/heads.md.
    """
    return _Run(_loaded(model), config or HeadBiasConfig(), progress, store).run(triples)


def _loaded(model: LoadedModel | TransformerBridge) -> LoadedModel:
    if isinstance(model, LoadedModel):
        return model
    from transformer_lens.model_bridge import TransformerBridge

    if isinstance(model, TransformerBridge) and model.tokenizer is not None:
        name = str(model.cfg.model_name)
        return LoadedModel(model.original_model, model.tokenizer, name, bridge=model)
    raise InputError(
        f"`model` must come from tda_bias.load_model, or be a TransformerBridge with a tokenizer; "
        f"got {type(model).__name__}"
    )


class _Run:
    """The state of one call of ``head_bias``: what has been done, and how long it took."""

    def __init__(
        self,
        model: LoadedModel,
        config: HeadBiasConfig,
        progress: Progress | None,
        store: Callable[[dict[str, Any]], PartStore] | None,
    ) -> None:
        self.model = model
        self.config = config
        self.progress = progress or (lambda done, total: None)
        self.make_store = store
        self.seconds: dict[str, float] = defaultdict(float)
        self.done = 0
        self.total = 0

    def run(self, triples: Sequence[Triple]) -> HeadBias:
        with self._evaluating():
            with self._stage("tokenize"):
                groups, left_out = self._tokenized(triples)
            self.total = 3 * sum(len(group) for group in groups.values())
            if self.make_store is None:
                identity, kept = None, None
            else:
                with self._stage("identify"):
                    identity = self._identity()
                kept = self.make_store(identity)
            results = self._results(groups, kept)
        with self._stage("inference"):
            tables = self._tables(results)
        identity = identity or self._identity()
        record = {
            "tdabias": version("tdabias"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": {
                **model_record(self.model, weights=identity["weights"]),
                **attention_record(self.model),
            },
            "config": self.config.model_dump(),
            "texts": texts_record(groups, left_out),
            "groups": [
                {"category": r.category, "group": r.group, "triples": r.statistic.n} | r.provenance
                for r in results
            ],
            "controls": tables.pop("controls"),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "packages": package_versions(),
        }
        return HeadBias(**tables, record=record)

    # -- preparation --

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Dropout changes patterns: evaluation mode, and the mode before afterwards."""
        training = self.model.hf_model.training
        self.model.bridge.eval()
        try:
            yield
        finally:
            self.model.bridge.train(training)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def _tokenized(
        self, triples: Sequence[Triple]
    ) -> tuple[dict[GroupKey, list[TokenizedTriple]], list[dict[str, str]]]:
        """Usable triples by group, and those left out with the reason."""
        tokens = tokenize(self.model.tokenizer, triples, max_tokens=self.model.max_tokens)
        groups: dict[GroupKey, list[TokenizedTriple]] = {}
        left_out = []
        for triple, tokenized in zip(triples, tokens, strict=True):
            usable = groups.setdefault((triple.category, triple.group), [])
            if min(tokenized.n_tokens) < MIN_TOKENS:
                reason = f"a text has fewer than {MIN_TOKENS} tokens and no value in dimension 1"
                left_out.append({"source": triple.source, "group": triple.group, "reason": reason})
            else:
                usable.append(tokenized)
        if not groups:
            raise InputError("`triples` is empty: there is nothing to compare")
        for (category, group), usable in groups.items():
            if len(usable) < 2:
                raise InputError(
                    f"the group {group!r} ({category}) has {len(usable)} usable triple, a variance "
                    "needs 2; raise --limit, or name the groups to use with --group"
                )
        return dict(sorted(groups.items())), left_out

    def _identity(self) -> dict[str, Any]:
        """The settings that the numbers of a group depend on."""
        dumped = self.config.model_dump(
            include={"distance", "backend", "combine", "adjust", "seed"}
        )
        return {
            "format": 2,
            "model": self.model.name,
            "weights": self.model.weight_hash(),
            "dtype": self.model.dtype_name,
            **dumped,
        }

    # -- the groups --

    def _results(
        self, groups: dict[GroupKey, list[TokenizedTriple]], kept: PartStore | None
    ) -> list[GroupResult]:
        reader = PatternReader(self.model, batch_size=self.config.batch_size)
        results, sharing = [], None
        for (category, group), triples in groups.items():
            name = f"{category} {group}"
            depends_on = {"texts": texts_hash([triple.ids for triple in triples])}
            saved = kept.load(name, depends_on) if kept else None
            if saved is not None:
                results.append(GroupResult.from_arrays(category, group, saved))
                self._advance(3 * len(triples))
                continue
            if sharing is None:
                with self._stage("forward"):
                    sharing = self._sharing(reader, groups)
            result = self._group(category, group, triples, reader, sharing)
            if kept:
                kept.save(name, depends_on, result.to_arrays())
            results.append(result)
        return results

    def _sharing(
        self, reader: PatternReader, groups: dict[GroupKey, list[TokenizedTriple]]
    ) -> tuple[bool, str]:
        if self.config.share_prefix == "never":
            return False, "off: as asked"
        everything = [triple for triples in groups.values() for triple in triples]
        return prefix_sharing(reader, everything, self.model.attention)

    def _group(
        self,
        category: str,
        group: str,
        triples: list[TokenizedTriple],
        reader: PatternReader,
        sharing: tuple[bool, str],
    ) -> GroupResult:
        n_tokens = np.array([triple.n_tokens for triple in triples])
        sampler = GroupSampler(
            n_tokens,
            n_layers=len(self.model.pattern_hooks),
            attention=self.model.attention,
            combine=self.config.combine,
            backend=self.config.backend,
            distance=self.config.distance,
        )

        def add(batch: PatternBatch) -> None:
            with self._stage("topology"):
                sampler.add(batch)

        before = dict(self.seconds)
        with self._stage("forward"):
            rows = reader.read(triples, add, shared=sharing[0], after_pass=self._advance)
        self.seconds["forward"] -= self.seconds["topology"] - before.get("topology", 0.0)
        with self._stage("statistic"):
            result = group_result(
                category,
                group,
                sampler,
                n_tokens,
                attention=self.model.attention,
                adjust=self.config.adjust,
                rng=generator(self.config.seed, "splits", category, group),
            )
        stages = ("forward", "topology", "statistic")
        spent = {name: round(self.seconds[name] - before.get(name, 0.0), 3) for name in stages}
        provenance = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "prefix_sharing": sharing[1],
            "row_sums": asdict(rows),
            "seconds": spent,
        }
        return replace(result, provenance=provenance)

    def _advance(self, texts: int) -> None:
        self.done += texts
        self.progress(self.done, self.total)

    # -- the tables --

    def _tables(self, results: list[GroupResult]) -> dict[str, Any]:
        name = self.model.name
        heads = [head_table(result, self.config, model=name) for result in results]
        combined = [combined_table(result, model=name) for result in results]
        rows = [group_row(*parts) for parts in zip(results, heads, combined, strict=True)]
        groups, everything = pd.DataFrame(rows), pd.concat(combined, ignore_index=True)
        table = pd.concat(heads, ignore_index=True)
        categories, stated = [], []
        for category in in_order({result.category: None for result in results}):
            own = [result for result in results if result.category == category]
            categories.append(category_table(category, own, everything, self.config, model=name))
            rows_of, groups_of = (f[f["category"] == category] for f in (table, groups))
            stated.append(controls(rows_of, groups_of, categories[-1], own, self.config))
        return {
            "table": table,
            "combined": everything,
            "category": pd.concat(categories, ignore_index=True),
            "groups": groups,
            "controls": stated,
        }
