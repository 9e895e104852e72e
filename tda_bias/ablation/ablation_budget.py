"""How many heads and random sets an ablation can afford in a given time.

Measured on one batch of texts: a layer, and reading the outcomes. What a plan runs is known
(``removal_plan``), so the time of each possible study follows; what is run twice where networks do
not fit into memory together is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.removal_plan import layers_run, removal_plan
from tda_bias.ablation.study import FEWEST_RANDOM, head_sets
from tda_bias.heads.result import HeadBias
from tda_bias.models.load import LanguageModel
from tda_bias.runs.cache import PartStore
from tda_bias.runs.text import counted
from tda_bias.types import HeadId, InputError

# Numbers of random sets to choose from; p can be as small as 1 / (1 + n).
_RANDOM = (199, 99, 59, 39, FEWEST_RANDOM)
# Networks read on top of the whole one while measuring.
_MEASURED = 4
# What takes less is measured again, for the clock alone would say too little.
_ENOUGH_SECONDS = 0.1


@dataclass(frozen=True)
class AblationPlan:
    """What will be removed, and how long that takes.

    Attributes:
        top: Heads from each end of the ranking.
        n_random: Random sets of heads; fewer than ``FEWEST_RANDOM`` where these are all there are.
        sets: Networks whose outcomes are read, the whole one included.
        triples: Texts' triples.
        minutes: Expected.
    """

    top: int
    n_random: int
    sets: int
    triples: int
    minutes: float

    def record(self) -> dict[str, float]:
        """The same for a run record."""
        return {name: float(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        heads = "head" if self.top == 1 else "heads"
        drawn = "set" if self.n_random == 1 else "sets"
        return (
            f"{self.top} {heads} from each end of the ranking and {self.n_random} random {drawn}: "
            f"{counted(self.sets, 'network')} on {counted(self.triples, 'triple')}, about "
            f"{self.minutes:.1f} minutes"
        )


@dataclass(frozen=True)
class Cost:
    """Seconds of an ablation's parts, over all texts.

    Attributes:
        layer: One layer.
        read: Reading the outcomes of one network.
        first_order: The estimates for all heads.
        behaviour: Further outcomes of one network.
    """

    layer: float
    read: float
    first_order: float
    behaviour: float = 0.0

    def of(self, ablator: Ablator, sets: list[tuple[HeadId, ...]], n_behaviour: int) -> float:
        """Seconds of a study."""
        position = {layer.number: i for i, layer in enumerate(ablator.layers)}
        plan = removal_plan([[HeadId(position[h.layer], h.head) for h in heads] for heads in sets])
        read = sum(node.is_read for node in plan)
        exact = self.layer * layers_run(plan, ablator.n_layers) + self.read * read
        return exact + self.first_order + self.behaviour * n_behaviour


def planned(
    ablator: Ablator,
    run: HeadBias,
    *,
    category: str,
    minutes: float,
    top: int = 10,
    n_random: int = 199,
    seed: int = 0,
    behaviour: Callable[[LanguageModel], dict[str, float]] | None = None,
    store: PartStore | None = None,
) -> AblationPlan:
    """The largest study that fits: first as many heads as possible, then random sets.

    Args:
        ablator: On the texts whose outcomes count.
        run: The run whose map ranks the heads.
        category: The map.
        minutes: What the study may take.
        top: Heads from each end of the ranking at most.
        n_random: Random sets at most, at least 20.
        seed: As for the study.
        behaviour: As for the study.
        store: Where the plan is kept, so that a study that is started again has the same.

    Raises:
        InputError: if not even one head from each end with 20 random sets fits.
    """
    if minutes <= 0:
        raise InputError(f"`budget` must be minutes above 0; got {minutes}")
    asked = {"minutes": minutes, "top": top, "n_random": n_random, "category": category}
    saved = store.load("plan", asked) if store is not None else None
    if saved is not None:
        top, drawn, sets, triples = (
            int(saved[name]) for name in ("top", "n_random", "sets", "triples")
        )
        return AblationPlan(top, drawn, sets, triples, float(saved["minutes"]))
    cost = measured_cost(ablator, behaviour)
    plan = _largest(ablator, run, category, minutes, top, n_random, seed, cost)
    if store is not None:
        store.save("plan", asked, {name: np.array(value) for name, value in vars(plan).items()})
    return plan


def _largest(
    ablator: Ablator,
    run: HeadBias,
    category: str,
    minutes: float,
    top: int,
    n_random: int,
    seed: int,
    cost: Cost,
) -> AblationPlan:
    def plan(top: int, n_random: int) -> AblationPlan:
        rng = np.random.default_rng(seed)
        labelled, _ = head_sets(run, category, top=top, n_random=n_random, rng=rng)
        sets = [removal.heads for removal in labelled]
        drawn = sum(removal.kind == "random_set" for removal in labelled)
        seconds = cost.of(ablator, sets, n_behaviour=drawn + 2)
        return AblationPlan(top, drawn, len(sets), ablator.readings.n_triples, seconds / 60)

    fewest = min(n_random, _RANDOM[-1])
    for heads in range(top, 0, -1):
        least = plan(heads, fewest)
        if least.minutes <= minutes:
            break
    else:
        raise InputError(
            f"`budget` {minutes:g} minutes are too few: one head from each end and {fewest} random "
            f"sets take about {least.minutes:.1f}; read fewer triples with --limit"
        )
    larger = (plan(heads, n) for n in (n_random, *_RANDOM) if fewest < n <= n_random)
    return next((larger_plan for larger_plan in larger if larger_plan.minutes <= minutes), least)


def measured_cost(
    ablator: Ablator, behaviour: Callable[[LanguageModel], dict[str, float]] | None = None
) -> Cost:
    """Seconds of each part of an ablation, from a batch of texts of middle length.

    Where batches are computed side by side, so are those that are timed.
    """

    def seconds(run: Callable[[], object]) -> float:
        times: list[float] = []
        while sum(times) < _ENOUGH_SECONDS:
            start = time.perf_counter()
            for _ in ablator.each(lambda _: run(), range(ablator.at_a_time)):
                pass
            times.append(time.perf_counter() - start)
        return min(times) / ablator.at_a_time

    def read(*sets: tuple[HeadId, ...]) -> float:
        return seconds(lambda: ablator.read(probe, sets))

    def behave(of_model: Callable[[LanguageModel], object]) -> None:
        with ablator.borrowed() as remover, remover.removed(()):
            of_model(remover.model)

    passes = [make() for make in ablator.readings.passes]
    size = np.array([tree_pass.written.numel() for tree_pass in passes])
    probe = passes[int(np.argsort(size)[len(size) // 2])]
    share = size.sum() / probe.written.numel()
    last = ablator.layers[-1]
    others = [(HeadId(last.number, head),) for head in range(min(_MEASURED, last.n_heads))]
    read(())  # the first pass is slower than all later ones
    whole = read(())
    more = read((), *others)
    both = max(0.0, more - whole) / len(others)  # one layer, and reading
    layer = max(0.0, whole - both) / max(1, ablator.n_layers - 1)
    slopes = seconds(lambda: ablator.slopes(probe))
    return Cost(
        layer=layer * share,
        read=max(0.0, both - layer) * share,
        first_order=slopes * share,
        behaviour=0.0 if behaviour is None else seconds(lambda: behave(behaviour)),
    )
