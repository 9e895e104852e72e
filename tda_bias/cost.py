"""What ``head_bias`` will take, counted and measured for a few seconds.

Operations are counted from shapes. Time is measured on some contexts of a group of middling cost
and scaled: passes by their operations, births and deaths by the squares of lengths, the comparison
of a group's texts by the square of their number, tests by what a second group adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tda_bias.config import HeadBiasConfig
from tda_bias.heads.group_result import GroupResult
from tda_bias.heads.head_bias import TokenizedGroup, computed_group, tokenized_groups
from tda_bias.heads.passes import ContextTexts
from tda_bias.heads.patterns import MOST_PASS_ELEMENTS, PatternReader
from tda_bias.heads.sampler import MOST_BYTES, SIZE_OF, WORKING_BYTES
from tda_bias.heads.side_by_side import groups_at_a_time
from tda_bias.heads.tables import tables
from tda_bias.models.load import LoadedModel
from tda_bias.progress import Counter, Stopwatch
from tda_bias.threads import torch_shared_by
from tda_bias.twins.twins import Twins
from tda_bias.types import Triple

# Tokens of the two texts whose operations are counted.
_COUNTED = (8, 16)
# Contexts of the first trial, which also loads what is loaded once.
_FIRST = 2


@dataclass(frozen=True)
class Cost:
    """What a run takes.

    Attributes:
        groups: Number of groups.
        texts: Number of texts, twins included.
        tokens: Their tokens.
        tokens_run: Tokens that go through the model: common prefixes once where that is exact.
        longest: Tokens of the longest text.
        flops: Floating-point operations of the forward passes, a multiplication and an addition
            being two.
        model_bytes: Memory of the weights.
        pass_bytes: Of one forward pass: its patterns, and a layer's scores beside them.
        group_bytes: Of one group: its sorted sets, as far as they are not on disk, and what works
            on them.
        result_bytes: Of all groups' results, in memory at the end, and of the saved parts on disk.
        temporary_bytes: On disk, in the temporary folder, of the largest group's sorted sets.
        seconds: Expected time by stage.
        trial_contexts: How many contexts the time was measured on at last.
        trial_seconds: How long that took.
    """

    groups: int
    texts: int
    tokens: int
    tokens_run: int
    longest: int
    flops: float
    model_bytes: int
    pass_bytes: int
    group_bytes: int
    result_bytes: int
    temporary_bytes: int
    seconds: dict[str, float]
    trial_contexts: int
    trial_seconds: float


def estimated_cost(
    model: LoadedModel,
    triples: Sequence[Triple],
    *,
    twins: Twins | None = None,
    config: HeadBiasConfig | None = None,
    trial_seconds: float = 5.0,
) -> Cost:
    """What ``head_bias`` with the same arguments will take on this machine.

    Args:
        model: As in ``head_bias``.
        triples: As in ``head_bias``.
        twins: As in ``head_bias``.
        config: As in ``head_bias``.
        trial_seconds: About how long the last of three trials may take.

    Raises:
        InputError: as ``head_bias``.
    """
    config = config or HeadBiasConfig()
    groups, _ = tokenized_groups(model, triples, twins)
    contexts = [context for group in groups for context in group.contexts]
    reader = PatternReader(
        model,
        batch_size=config.batch_size,
        share_prefix=config.share_prefix,
        edges=config.edges,
    )
    shared = reader.find_sharing(contexts).used
    every = [context for group in groups for context in (*group.contexts, *group.twins)]
    lengths = np.concatenate([group.lengths for group in groups])
    n = groups_at_a_time(model, None, int(lengths.max()), len(groups))
    trial = _trial(model, reader, groups, config, trial_seconds, n)
    heads = len(model.pattern_hooks) * model.n_heads
    sets = max(_set_bytes(group, heads) for group in groups)
    widths = [width for context in every for width in _widths(context, shared)]
    return Cost(
        groups=len(groups),
        texts=len(lengths),
        tokens=int(lengths.sum()),
        tokens_run=sum(widths),
        longest=int(lengths.max()),
        flops=flops(model, widths),
        model_bytes=sum(p.numel() * p.element_size() for p in model.hf_model.parameters()),
        pass_bytes=_pass_bytes(model, max(widths), heads),
        group_bytes=min(sets, MOST_BYTES) + WORKING_BYTES,
        result_bytes=trial.result_bytes(groups),
        temporary_bytes=sets if sets > MOST_BYTES else 0,
        seconds=trial.scaled(groups, flops(model, widths)),
        trial_contexts=len(trial.group.contexts),
        trial_seconds=sum(trial.trials[-1].seconds.values()),
    )


def flops(model: LoadedModel, widths: Sequence[int]) -> float:
    """Operations of forward passes that end with the last pattern, by the widths of their rows.

    Counted by torch on two short texts, which gives the linear and the quadratic part. Padding is
    not counted.
    """
    short, long = (_counted(model, n) for n in _COUNTED)
    first, second = _COUNTED
    quadratic = (long / second - short / first) / (second - first)
    linear = short / first - quadratic * first
    tokens = np.asarray(widths, dtype=float)
    return float(linear * tokens.sum() + quadratic * (tokens**2).sum())


def _counted(model: LoadedModel, n_tokens: int) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    rows = model.hf_model.get_input_embeddings().num_embeddings
    text = ContextTexts(([(token + 5) % int(rows) for token in range(n_tokens)],), 0)
    with FlopCounterMode(display=False) as counter:
        for _ in PatternReader(model, batch_size=1).read([text]):
            pass
    return float(counter.get_total_flops())


# -- the trial -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trial:
    """A group that was computed, with what that took.

    Attributes:
        group: The group.
        flops: Operations of its passes.
        trials: What it took, after those of fewer contexts.
    """

    group: TokenizedGroup
    flops: float
    trials: list[_Numbers]

    def scaled(self, groups: Sequence[TokenizedGroup], all_flops: float) -> dict[str, float]:
        """Seconds of all groups."""
        seconds = self.trials[-1].seconds

        def share(number: str) -> float:
            return sum(_amounts(group)[number] for group in groups) / _amounts(self.group)[number]

        # Some tests are made once, whatever the number of groups: a second group adds the others.
        more = min(max(seconds["of a second group"], 0.0), seconds["inference"])
        return {
            "forward": seconds["forward"] * all_flops / self.flops,
            "births and deaths": seconds["births and deaths"] * share("squares"),
            "comparison": seconds["comparison"] * share("pairs"),
            "inference": seconds["inference"] - more + more * share("contexts"),
        }

    def result_bytes(self, groups: Sequence[TokenizedGroup]) -> int:
        """Bytes of all results: a polynomial of the number of contexts through the trials."""
        sizes = {trial.contexts: trial.n_bytes for trial in self.trials}
        contexts, n_bytes = np.array(list(sizes)), np.array(list(sizes.values()), dtype=float)
        fitted = np.polynomial.Polynomial.fit(contexts, n_bytes, min(2, len(contexts) - 1))
        return int(sum(max(0.0, fitted(len(group.contexts))) for group in groups))


def _amounts(group: TokenizedGroup) -> dict[str, float]:
    lengths = group.lengths.astype(float)
    return {
        "squares": float((lengths**2).sum()),
        # Products of step functions: of all pairs of texts, over as many steps as the largest set.
        "pairs": float(len(lengths) ** 2 * lengths.max() ** 2),
        "contexts": len(group.contexts),
    }


def _trial(
    model: LoadedModel,
    reader: PatternReader,
    groups: Sequence[TokenizedGroup],
    config: HeadBiasConfig,
    long_enough: float,
    side_by_side: int,
) -> _Trial:
    """The middling group, or as many of its contexts as take long enough.

    Where groups are computed side by side it has its share of the threads, and counts by its share.
    """
    middle = sorted(groups, key=lambda group: group.cost)[len(groups) // 2]
    trials: list[_Numbers] = []
    n = _FIRST
    while True:
        group = _first_contexts(middle, n)
        trials.append(_measured(group, model, reader, config, side_by_side))
        if len(trials) == 3 or (n == len(middle.contexts) and len(trials) > 1):
            break
        fits = n * long_enough / sum(trials[-1].seconds.values())
        n = 2 * n if len(trials) == 1 else max(n, int(fits))
        n = min(n, len(middle.contexts))
    shared = reader.sharing.used
    widths = [w for c in (*group.contexts, *group.twins) for w in _widths(c, shared)]
    return _Trial(group, flops(model, widths), trials)


@dataclass(frozen=True)
class _Numbers:
    """What one trial took: contexts, bytes of the result, seconds by stage."""

    contexts: int
    n_bytes: int
    seconds: dict[str, float]


def _measured(
    group: TokenizedGroup,
    model: LoadedModel,
    reader: PatternReader,
    config: HeadBiasConfig,
    side_by_side: int,
) -> _Numbers:
    clock, of_group = Stopwatch(), Stopwatch()
    with torch_shared_by(side_by_side):
        result = computed_group(group, reader, config, of_group, Counter(1, None))
    clock.add(of_group, share=1 / side_by_side)
    second = replace(result, group=f"{result.group}, once more")
    with clock.stage("inference"):
        tables([result], config, model=model.name)
    with clock.stage("of two groups"):
        tables([result, second], config, model=model.name)
    seconds = {
        "forward": clock.seconds["forward"],
        "births and deaths": clock.seconds["topology"] - clock.seconds["gram"],
        "comparison": clock.seconds["gram"] + clock.seconds["statistic"],
        "inference": clock.seconds["inference"],
        "of a second group": clock.seconds["of two groups"] - clock.seconds["inference"],
    }
    return _Numbers(len(group.contexts), _n_bytes(result), seconds)


def _first_contexts(group: TokenizedGroup, n: int) -> TokenizedGroup:
    kept = [number for number, context in enumerate(group.twin_of) if context < n]
    return replace(
        group,
        contexts=group.contexts[:n],
        twins=[group.twins[number] for number in kept],
        twin_of=[group.twin_of[number] for number in kept],
        items=group.items[:n],
    )


# -- sizes -----------------------------------------------------------------------------------------


def _widths(context: ContextTexts, shared: bool) -> tuple[int, ...]:
    return (context.n_packed,) if shared else context.n_tokens


def _n_bytes(result: GroupResult) -> int:
    return sum(np.asarray(values).nbytes for values in result.to_arrays().values())


def _set_bytes(group: TokenizedGroup, heads: int) -> int:
    values = sum(size(int(n)) for n in group.lengths for size in SIZE_OF)
    return 4 * heads * values


def _pass_bytes(model: LoadedModel, widest: int, heads: int) -> int:
    entries = max(MOST_PASS_ELEMENTS, heads * widest**2)
    layers = len(model.pattern_hooks)
    # The patterns of all layers, and a layer's scores before and after the softmax.
    return int(model.dtype.itemsize * entries * (1 + 2 / layers))
