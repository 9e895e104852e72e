"""The protocol of an experiment: what is trained on what and when it stops, fixed before it begins.

Targets are split into folds. A fold's targets test; of the others one in four validates, which
stops the training, and the rest choose heads and train. Nothing is chosen or stopped on a test
target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal, TypeVar, get_args

import numpy as np
from jaxtyping import Int
from pydantic import BaseModel, ConfigDict, Field

from tda_bias.config import WithCommas
from tda_bias.stats.seeds import generator
from tda_bias.store.hashes import text_hash
from tda_bias.types import MAX_COUNT, MAX_SEED, HeadId, InputError, Triple

How = Literal["gates", "tune", "lora", "full", "leace", "steering"]
# What changes no weights, but the residual stream while the model runs.
EDITS: tuple[How, ...] = ("leace", "steering")
Preset = Literal["smoke", "full"]
Ranking = Literal[
    "evidence", "published", "importance", "effect", "mediation", "gates", "bottom", "file"
]
# What is trained beside chosen heads, and what others would do instead.
Control = Literal[
    "all", "placebo", "retention", "plain", "full", "cda", "leace", "steering",
]  # fmt: skip
CONTROLS: tuple[Control, ...] = get_args(Control)
# What a training lowers: see ``training.loss_of``.
Goal = Literal["gaps", "plain", "placebo", "retention", "cda"]
N_FOLDS, _FEWEST_TARGETS = 5, 4
# Items of a step.
_BATCH = 12
FINAL = -1
T = TypeVar("T")
RANDOM = "random"
# Whose learned gates are the ranking `gates`.
ALL_GATES = "gates of all heads"
# Learning rates in the order in which they are tried. A step of Adam moves every number by about
# the rate. So those of ``tune`` are shares of a typical weight, which differs from model to model:
# 3e-4 for SmolLM2-135M, 5e-5 for Gemma 3 270M, whose weights are six times smaller.
RATES: dict[How, tuple[float, ...]] = {
    "gates": (0.03, 0.01, 0.1),
    "tune": (1.7e-3, 5.6e-4, 5.6e-3),
    "lora": (1e-3, 3e-4, 3e-3),
    "full": (1e-5, 3e-6, 3e-5),
}


_Weight = Annotated[float, Field(ge=0, le=1000)]


class Protocol(BaseModel):
    """Everything that decides an experiment's numbers beside the model and the texts.

    The same folds, batches, guards and stops hold for every condition. ``tdabias debias`` takes its
    options from here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: Literal["tune", "gates", "lora"] = Field(
        "tune",
        description="what learns: tune (the heads' weights), gates (one number per head, folded "
        "into the weights), lora (an adapter on them)",
    )
    by: Annotated[tuple[Ranking, ...], WithCommas] = Field(
        ("effect",),
        min_length=1,
        description="rankings that choose heads, with commas: evidence, published, importance, "
        "effect, mediation, gates, bottom, file; random heads are drawn like the first",
    )
    top: int = Field(27, ge=1, le=MAX_COUNT, description="heads that are chosen (default: a tenth)")
    n_random: int = Field(20, ge=1, le=1000, description="random sets of heads")
    controls: Annotated[tuple[Control, ...], WithCommas] = Field(
        (),
        description="what else is compared, with commas: all (heads), placebo, retention, plain, "
        "full, cda, leace, steering; or none",
    )
    n_folds: int = Field(N_FOLDS, ge=2, description="folds that the targets are split into")
    folds_run: int = Field(5, ge=1, le=N_FOLDS, description="folds of targets that are run, of 5")
    epochs: int = Field(3, ge=1, le=100, description="passes over the training items")
    checks_per_epoch: int = Field(1, ge=1, description="looks at the validation targets")
    n_rates: int = Field(1, ge=1, le=3, description="learning rates that are tried")
    typical_weight: float = Field(
        0.18, gt=0, description="of the heads, of which learning rates of tune are shares"
    )
    train_items: int | None = Field(
        None, ge=4, le=MAX_COUNT, description="items of a fold that train, at most"
    )
    check_items: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="validation items of a fold, and test items, at most"
    )
    # Of 48 texts and a fold's 36 validation items one lost comparison is .6 points, of 192 .2.
    watched: int = Field(
        192,
        ge=1,
        description="texts of other categories that count in the language-model score while "
        "training",
    )
    domain: Annotated[tuple[_Weight, ...], WithCommas] = Field(
        (1.0,),
        min_length=1,
        description="weights, with commas, of the divergence on texts of the other categories; "
        "validation targets choose",
    )
    # A change of .1 nats per token weighs about what it does in a gap.
    anchor: Annotated[tuple[_Weight, ...], WithCommas] = Field(
        (10.0,),
        min_length=1,
        description="weights, with commas, of the anchor: the squared change of how much likelier "
        "related continuations are than the unrelated one; validation targets choose",
    )
    allowed: float = Field(
        1.0,
        ge=0,
        le=100,
        description="points that the language-model scores and minimal pairs may lose, and per "
        "cent that perplexity may gain",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="of matrix products while training and checking: float32, or bfloat16, about "
        "twice as fast on many processors; what is learned and saved is float32",
    )
    seed: int = Field(0, ge=0, le=MAX_SEED, description="fixes every random draw")

    @property
    def choosing(self) -> tuple[Ranking, ...]:
        """The rankings that are no control, of which one is recommended; all, if each is one."""
        return tuple(name for name in self.by if name != "bottom") or self.by

    def batches(self, n_items: int) -> int:
        """Steps of a pass over so many items."""
        return -(-n_items // _BATCH)

    def steps(self, n_items: int) -> int:
        """Steps of a whole training on so many items."""
        return self.epochs * self.batches(n_items)


PRESETS: dict[Preset, dict[str, Any]] = {
    "smoke": {
        "by": ("effect",), "n_random": 2, "folds_run": 1, "epochs": 1, "train_items": 36,
        "check_items": 36, "watched": 48,
    },
    "full": {
        "by": ("evidence", "published", "importance", "effect", "mediation", "gates", "bottom"),
        "n_random": 20, "controls": CONTROLS, "folds_run": 5, "epochs": 4, "checks_per_epoch": 2,
        "n_rates": 3,
    },
}  # fmt: skip


def protocol_of(
    preset: Preset,
    asked: dict[str, Any],
    *,
    n_heads: int,
    typical_weight: float,
    n_targets: int,
    save: Sequence[str] = (),
) -> Protocol:
    """A preset, with what was asked for otherwise; as many folds as there are targets for.

    A tenth of the model's heads learns unless ``top`` was asked for. None leaves what the preset
    has.

    Raises:
        InputError: if ``top`` is no choice among the heads, the heads write nothing, or a condition
            whose model is to be saved is not trained.
    """
    if not typical_weight > 0:  # or NaN
        raise InputError(
            "`model` has heads that write nothing: their output projections are all 0, or undefined"
        )
    defaults = {
        "n_folds": max(2, min(N_FOLDS, n_targets)),
        "top": max(1, n_heads // 10),
        "typical_weight": typical_weight,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    protocol = Protocol(**{**defaults, **PRESETS[preset], **given})
    protocol = protocol.model_copy(update={"folds_run": min(protocol.folds_run, protocol.n_folds)})
    require_trained(save, protocol)
    if protocol.top >= n_heads:
        raise InputError(f"`top` must be below the model's {n_heads} heads; got {protocol.top}")
    return protocol


def require_trained(names: Sequence[str], protocol: Protocol) -> None:
    """Refuse conditions whose models cannot be saved, because the protocol does not train them."""
    trained = {c.name: None for c in conditions(protocol) if c.how not in EDITS}
    for name in names:
        if name not in trained:
            raise InputError(
                f"`save` must be of {', '.join(trained)}, whose weights this run trains; got "
                f"{name!r}"
            )


def protocol_hash(protocol: Protocol, about: dict[str, Any]) -> str:
    """Hash of a protocol with what it is applied to: model, texts, folds, heads of a file.

    The typical weight counts only where something is tuned: it decides nothing else.
    """
    tunes = any(condition.how == "tune" for condition in conditions(protocol))
    settings = protocol.model_dump(mode="json", exclude=set() if tunes else {"typical_weight"})
    text = json.dumps({**settings, **about}, sort_keys=True)
    return text_hash(text)


# -- conditions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """One way to change the model: a ranking, ``random``, or a control.

    ``ranking`` is None where all heads or a random set learn; ``draw`` is the number of that set.
    """

    name: str
    how: How
    ranking: Ranking | None = None
    draw: int = -1
    goal: Goal = "gaps"

    @property
    def part(self) -> str:
        """The condition's name among saved parts."""
        return f"{self.name} {self.draw}" if self.draw >= 0 else self.name


def conditions(protocol: Protocol) -> list[Condition]:
    """Every condition of a protocol but the untouched model.

    Random sets have as many heads in each layer as the first ranking, where its layers have as
    many others. Controls that train heads train those of the first ranking.
    """
    how, first = protocol.how, protocol.by[0]
    listed = [Condition(name, how, ranking=name) for name in protocol.by]
    listed += [Condition(RANDOM, how, draw=draw) for draw in range(protocol.n_random)]
    for name in protocol.controls:
        match name:
            case "all":
                listed.append(Condition(name, how))
            case "full":
                listed.append(Condition(name, "full"))
            case "cda":
                listed.append(Condition(name, "full", goal="cda"))
            case "leace" | "steering":
                listed.append(Condition(name, name))
            case _:
                listed.append(Condition(name, how, first, goal=name))
    return listed


@dataclass(frozen=True)
class Trial:
    """Settings of which the validation targets choose: of a training, or of an edit.

    ``layer`` is that after which an edit is made, as a share of all; None for all layers.
    """

    rate: float = 0.0
    domain: float = 0.0
    anchor: float = 0.0
    layer: float | None = None
    sign: int = 1

    def __str__(self) -> str:
        if not self.rate:
            where = "all layers" if self.layer is None else f"layer at {self.layer:g}"
            return f"{where}, sign {self.sign:+d}"
        return f"rate {self.rate:g} domain {self.domain:g} anchor {self.anchor:g}"


def trials(protocol: Protocol, condition: Condition) -> list[Trial]:
    """The settings that are tried of a condition."""
    match condition.how:
        case "leace":
            return [Trial(layer=0.5), Trial(layer=None)]
        case "steering":
            return [Trial(layer=layer, sign=sign) for layer in (0.33, 0.67) for sign in (1, -1)]
    rates = RATES[condition.how][: protocol.n_rates]
    if condition.how == "tune":
        rates = tuple(float(f"{share * protocol.typical_weight:.0e}") for share in rates)
    if condition.goal in ("gaps", "placebo"):
        return [Trial(*of_trial) for of_trial in product(rates, protocol.domain, protocol.anchor)]
    return [Trial(rate) for rate in rates]


# -- folds -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of the targets, in numbers of items.

    ``number`` is -1 for the final fit, which tests on nothing. Targets that validate or test are
    kept ``apart``: no text about one of them trains, also no twin.
    """

    number: int
    train: Int[np.ndarray, " item"]
    validation: Int[np.ndarray, " item"]
    test: Int[np.ndarray, " item"]
    apart: frozenset[str] = frozenset()

    def parts(self) -> dict[str, Int[np.ndarray, " item"]]:
        """Items by what they are for."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True)
class Training:
    """A condition in a fold with some settings; ``heads`` are empty where other things learn."""

    condition: Condition
    fold: Fold
    heads: tuple[HeadId, ...] = ()
    trial: Trial = Trial()


def folds(
    triples: Sequence[Triple], twins: Sequence[Sequence[Triple]], protocol: Protocol
) -> list[Fold]:
    """The folds that are run, and after them the final fit where there are several.

    Targets are split so that folds have about as many items. An item whose twins are all about
    targets that validate or test does not train: its twin would show them. The final fit trains on
    the targets of all folds but those that stop it; what it is worth is what the folds show.

    Raises:
        InputError: if there are fewer targets than folds, or too few to train, validate and test,
            or no item of a fold has a twin to train with.
    """
    target = np.array([triple.group for triple in triples])
    names, size = np.unique(target, return_counts=True)
    fewest = max(protocol.n_folds, _FEWEST_TARGETS)
    if len(names) < fewest:
        raise InputError(
            f"targets that train, validate and test must be others: {fewest} are needed at least; "
            f"the data has {len(names)} ({', '.join(names[:5])}); give more data"
        )
    rng = generator(protocol.seed, "folds")
    order = rng.permutation(len(names))
    split: list[list[str]] = [[] for _ in range(protocol.n_folds)]
    load = np.zeros(protocol.n_folds)
    for index in order[np.argsort(-size[order], kind="stable")]:
        smallest = int(np.argmin(load))
        split[smallest].append(str(names[index]))
        load[smallest] += size[index]

    numbered = [*enumerate(split[: protocol.folds_run])]
    if len(numbered) > 1:
        numbered.append((FINAL, []))
    found = []
    for number, test in numbered:
        rest = [str(name) for name in names if name not in test]
        n_validation = max(1, round(len(rest) / 4))
        validation = [rest[i] for i in rng.permutation(len(rest))[:n_validation]]
        apart = frozenset([*test, *validation])
        able = _able_to_train(target, twins, apart)
        stops, tests = (np.flatnonzero(np.isin(target, part)) for part in (validation, test))
        found.append(
            Fold(
                number,
                _few(able, protocol.train_items),
                _few(stops, protocol.check_items),
                _few(tests, protocol.check_items),
                apart,
            )
        )
    return found


def _able_to_train(
    target: np.ndarray, twins: Sequence[Sequence[Triple]], apart: frozenset[str]
) -> Int[np.ndarray, " item"]:
    """Items about no target kept apart, with a twin that is not either, if they have any."""
    train = np.flatnonzero(~np.isin(target, [*apart])).tolist()
    able = [i for i in train if not twins[i] or any(twin.group not in apart for twin in twins[i])]
    if not able:
        raise InputError(
            f"all twins of {', '.join(np.unique(target[train])[:5])} are about targets that "
            "validate or test, so that nothing is left to train on; give data with more targets"
        )
    return np.array(able)


def _few(items: Int[np.ndarray, " item"], at_most: int | None) -> Int[np.ndarray, " item"]:
    return np.array(spread(items.tolist(), at_most), int)


def spread(items: Sequence[T], at_most: int | None) -> list[T]:
    """At most so many items, evenly over all."""
    if at_most is None or len(items) <= at_most:
        return list(items)
    places = np.linspace(0, len(items) - 1, at_most).round().astype(int)
    return [items[int(i)] for i in places]
