"""Does removing a head change what the model says?

A head is removed by replacing its output (before the output projection) with its mean over the
unrelated texts, or with zero. What changes is read from the same texts: the preference for the
stereotype, and the price in language modelling. Beside the exact effect of chosen heads stand
first-order estimates for every head, from one backward pass per batch.

A forward pass without a head of layer l starts at layer l, from the residual stream that the
unchanged pass left there: removing one head costs about (L - l) / L of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tda_bias.behaviour.likelihood import SplitTriple, continuation_tree, split_triples
from tda_bias.models.batching import special_tokens_around
from tda_bias.models.causal import TreePass, TreeReader, reader_of
from tda_bias.models.load import LoadedModel
from tda_bias.models.logits import logits_at
from tda_bias.models.token_trees import TokenTree
from tda_bias.records.parts import PartStore, texts_hash
from tda_bias.types import ROLES, HeadId, InputError, Triple

Ablation = Literal["mean", "zero"]
# An intervention that moves a head's output by less than this changed nothing.
_NO_CHANGE = 1e-12


@dataclass(frozen=True)
class Outcomes:
    """What a model says about triples, per triple.

    Attributes:
        continuation: Log-probabilities of the continuations, in the order of ``ROLES``.
        context: Log-probability of the context's tokens after the first.
        n_tokens: Numbers of tokens of the three continuations and of the context.
    """

    continuation: Float[np.ndarray, "triple role"]
    context: Float[np.ndarray, " triple"]
    n_tokens: Int[np.ndarray, "triple part"]

    @property
    def log_odds(self) -> Float[np.ndarray, " triple"]:
        """Log P(stereotype) - log P(anti-stereotype), nats."""
        return np.asarray(self.continuation[:, 0] - self.continuation[:, 1])

    def summary(self) -> dict[str, float]:
        """Mean log-odds, stereotype and language-model score, log-perplexities.

        Scores are over items, ties one half; ``log_ppl_unrelated`` and ``log_ppl_context`` are mean
        negative log-probabilities per token, nats.
        """
        s, a, u = self.continuation.T
        tokens = self.n_tokens.sum(0)
        return {
            "log_odds": float(self.log_odds.mean()),
            "ss": 50 * float(np.mean(np.sign(s - a) + 1)),
            "lms": 25 * float(np.mean(np.sign(s - u) + np.sign(a - u) + 2)),
            "log_ppl_unrelated": -float(u.sum() / tokens[2]),
            "log_ppl_context": -float(self.context.sum() / max(tokens[3], 1)),
        }


@dataclass(frozen=True)
class FirstOrder:
    """Estimates for every head from backward passes, ``(layer, head)`` each.

    Attributes:
        effect: Change of the summed log-odds of each triple when the head is removed, to first
            order, mean over triples (attribution patching).
        importance: Mean over triples of |z . dL/dz| with L the negative log-probability of all
            texts (Michel et al. 2019).
        direct: The part of ``effect`` that goes straight to the output, past all later layers, to
            first order (the direct effect in the sense of Vig et al. 2020).
    """

    effect: Float[np.ndarray, "layer head"]
    importance: Float[np.ndarray, "layer head"]
    direct: Float[np.ndarray, "layer head"]


class Ablator:
    """Runs a causal model on triples with and without heads.

    Args:
        model: A hooked causal language model.
        triples: The texts.
        ablation: ``mean`` over all places of the unrelated texts, or ``zero``.
        batch_size: Texts per forward pass.

    Raises:
        InputError: if the model is no causal language model, or a text does not fit.
    """

    def __init__(
        self,
        model: LoadedModel,
        triples: Sequence[Triple],
        *,
        ablation: Ablation = "mean",
        batch_size: int = 32,
    ) -> None:
        model.require_language_head()
        if model.kind != "causal":
            raise InputError(
                f"`model` {model.name} is a {model.kind} language model; heads are removed from "
                "causal ones"
            )
        if not triples:
            raise InputError("there is no triple to read")
        self.model = model
        self._blocks = list(model.bridge.blocks)
        self._in_tuple = False  # whether a block's output is the residual stream or holds it
        self._leading = special_tokens_around(model.tokenizer)[0]
        split = split_triples(model, triples)
        parts = [continuation_tree(one, self._leading, contexts=True) for one in split]
        self._trees = [tree for tree, _ in parts]
        self._part = [part for _, part in parts]
        self._reader = reader_of(model, self._trees, batch_size=batch_size, texts_per_tree=3)
        self.packed = self._reader.packed
        self.replacement = self._means(split, batch_size) if ablation == "mean" else None
        unrelated = [one.ids[ROLES.index("unrelated")] for one in split]
        self._replaced_by = texts_hash([(ids,) for ids in unrelated]) if ablation == "mean" else 0

    @property
    def n_layers(self) -> int:
        """Layers with heads."""
        return len(self._blocks)

    def check(self, heads: Sequence[HeadId]) -> None:
        """Refuse heads the model does not have.

        Raises:
            InputError: naming the first.
        """
        n_heads = self.model.bridge.cfg.n_heads
        for head in heads:
            if not (0 <= head.layer < self.n_layers and 0 <= head.head < n_heads):
                raise InputError(
                    f"{head} does not exist: `model` {self.model.name} has layers 0 to "
                    f"{self.n_layers - 1} with heads 0 to {n_heads - 1}"
                )

    def without(
        self,
        sets: Sequence[Sequence[HeadId]],
        *,
        restart: bool = True,
        store: PartStore | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[Outcomes]:
        """Outcomes without each set of heads; the empty set is the unchanged model.

        Args:
            sets: Heads to remove together.
            restart: Start each pass at its lowest layer; False runs all of it, for comparison.
            store: Where finished batches of texts are kept, for a run that is started again.
            progress: Called with batches done and to do.

        Raises:
            InputError: if a head does not exist, or removing it changes nothing (an architecture
                whose heads the hooks do not reach).
        """
        for heads in sets:
            self.check(heads)
        found = [[np.full(len(t.read_node), np.nan) for t in self._trees] for _ in sets]
        passes = list(self._reader.passes(self._trees))
        removed = {
            "heads": [[str(head) for head in heads] for heads in sets],
            "replacement": self._replaced_by,
        }
        for number, one in enumerate(passes):
            name = f"pass {number}"
            depends_on = {"texts": self._texts_hash(one), "packed": self.packed, **removed}
            saved = store.load(name, depends_on) if store is not None else None
            values = saved["values"] if saved is not None else self._pass(one, sets, restart)
            if store is not None and saved is None:
                store.save(name, depends_on, {"values": values})
            ends = np.cumsum([len(own) for own in one.readings])[:-1]
            for index, own in enumerate(values):
                for tree, which, value in zip(
                    one.tree, one.readings, np.split(own, ends), strict=True
                ):
                    found[index][tree][which] = value
            if progress is not None:
                progress(number + 1, len(passes))
        return [self._outcomes(values) for values in found]

    def _pass(
        self, one: TreePass, sets: Sequence[Sequence[HeadId]], restart: bool
    ) -> Float[np.ndarray, "set reading"]:
        """The readings of a pass, rows one after the other, without each set of heads."""
        with self._residuals() as residual:
            plain = np.concatenate(self._reader.run(one))
        values = []
        for heads in sets:
            if not heads:
                values.append(plain)
                continue
            start = min(head.layer for head in heads)
            with ExitStack() as stack:
                if restart:
                    stack.enter_context(self._from(start, residual[start]))
                stack.enter_context(self.removed(heads))
                values.append(np.concatenate(self._reader.run(one)))
        return np.stack(values)

    @contextmanager
    def removed(self, heads: Sequence[HeadId]) -> Iterator[None]:
        """The model without some heads, for whatever runs inside.

        Raises:
            InputError: if the output of a removed head was what replaced it in every place.
        """
        self.check(heads)
        by_layer: dict[int, list[int]] = {}
        for head in heads:
            by_layer.setdefault(head.layer, []).append(head.head)
        changed = dict.fromkeys(by_layer, 0.0)
        ran = False

        def replace(layer: int, own: list[int]) -> Callable[..., Tensor]:
            def hook(z: Tensor, hook: Any) -> Tensor:
                nonlocal ran
                ran = True
                new = z.clone()
                new[:, :, own] = self._new(layer, own).to(z)
                changed[layer] = max(changed[layer], float((new - z).abs().max()))
                return new

            return hook

        hooks = [(_z(layer), replace(layer, own)) for layer, own in by_layer.items()]
        with self.model.bridge.hooks(fwd_hooks=hooks):
            yield
        idle = [layer for layer, size in changed.items() if ran and size <= _NO_CHANGE]
        if heads and (not ran or idle):
            named = ", ".join(str(head) for head in heads if not ran or head.layer in idle)
            raise InputError(
                f"removing {named} changes nothing in `model` {self.model.name}: its hooks do not "
                "reach the heads"
            )

    def first_order(self, *, progress: Callable[[int, int], None] | None = None) -> FirstOrder:
        """Estimates for every head; see ``FirstOrder``."""
        layers, heads = self.n_layers, self.model.bridge.cfg.n_heads
        total = torch.zeros(3, layers, heads, dtype=torch.float64)
        passes = list(self._reader.passes(self._trees))
        frozen = [p for p in self.model.hf_model.parameters() if p.requires_grad]
        for parameter in frozen:
            parameter.requires_grad_(False)
        try:
            for number, one in enumerate(passes):
                total += self._gradients(one)
                if progress is not None:
                    progress(number + 1, len(passes))
        finally:
            for parameter in frozen:
                parameter.requires_grad_(True)
        effect, importance, direct = (total / len(self._trees)).numpy()
        return FirstOrder(effect, importance, direct)

    # -- parts --

    def _texts_hash(self, one: TreePass) -> str:
        """Of everything a pass reads, in order."""
        rows = []
        for index, readings in zip(one.tree, one.readings, strict=True):
            tree = self._trees[index]
            parts = (tree.tokens, tree.parent, tree.read_node, tree.read_token, readings)
            rows.append(tuple(np.asarray(part).tolist() for part in parts))
        return texts_hash(rows)

    def _new(self, layer: int, own: list[int]) -> Tensor:
        """What replaces the output of some heads of a layer."""
        return torch.zeros(()) if self.replacement is None else self.replacement[layer][own]

    def _outcomes(self, values: Sequence[np.ndarray]) -> Outcomes:
        sums = np.zeros((len(values), 4))
        counts = np.zeros((len(values), 4), dtype=np.int64)
        for index, (own, part) in enumerate(zip(values, self._part, strict=True)):
            sums[index] = np.bincount(part, weights=own, minlength=4)
            counts[index] = np.bincount(part, minlength=4)
        return Outcomes(sums[:, :3], sums[:, 3], counts)

    @contextmanager
    def _residuals(self) -> Iterator[dict[int, Tensor]]:
        """The input of every layer in the passes that run inside, by layer."""
        kept: dict[int, Tensor] = {}

        def see(_: Any, __: Any, output: Any) -> None:
            self._in_tuple = isinstance(output, tuple)

        hooks = [(f"blocks.{layer}.hook_in", _keep(kept, layer)) for layer in range(self.n_layers)]
        handle = self._blocks[0].register_forward_hook(see)
        try:
            with self.model.bridge.hooks(fwd_hooks=hooks):
                yield kept
        finally:
            handle.remove()

    @contextmanager
    def _from(self, layer: int, residual: Tensor) -> Iterator[None]:
        """Let a pass start at a layer: those before hand on what entered it before."""

        def hand_on(*_: Any, **__: Any) -> Any:
            return (residual,) if self._in_tuple else residual

        skipped = self._blocks[:layer]
        for block in skipped:
            # Setting the attribute would reach through to the module the bridge wraps.
            vars(block)["forward"] = hand_on
        try:
            yield
        finally:
            for block in skipped:
                del vars(block)["forward"]

    def _means(self, split: Sequence[SplitTriple], batch_size: int) -> Float[Tensor, "..."]:
        """Mean output of every head over all places of the unrelated texts."""
        role = ROLES.index("unrelated")
        texts = [[*self._leading, *one.ids[role]] for one in split]
        trees = [_chain(ids) for ids in texts]
        total: dict[int, Tensor] = {}
        n = 0

        def add(layer: int, real: Tensor) -> Callable[..., Tensor]:
            def hook(z: Tensor, hook: Any) -> Tensor:
                own = z[real].double().sum(0).cpu()
                total[layer] = total[layer] + own if layer in total else own
                return z

            return hook

        for one in TreeReader(self.model, batch_size=batch_size).passes(trees):
            real = one.inputs["attention_mask"].bool()
            n += int(real.sum())
            hooks = [(_z(layer), add(layer, real)) for layer in range(self.n_layers)]
            with torch.inference_mode(), self.model.bridge.hooks(fwd_hooks=hooks):
                logits_at(self.model.hf_model, one.inputs, one.places)
        return torch.stack([total[layer] / n for layer in range(self.n_layers)])

    def _gradients(self, one: TreePass) -> Float[Tensor, "3 layer head"]:
        """Sums over a pass's triples of the three estimates."""
        z: dict[int, Tensor] = {}
        out: dict[int, Tensor] = {}
        last = self.n_layers - 1

        def begin(residual: Tensor, hook: Any) -> Tensor:
            return residual.detach().requires_grad_()

        hooks: list[tuple[str, Callable[..., Tensor]]] = [("blocks.0.hook_in", begin)]
        hooks += [(_z(layer), _keep(z, layer)) for layer in range(self.n_layers)]
        hooks.append((f"blocks.{last}.hook_out", _keep(out, last)))
        with torch.enable_grad(), self.model.bridge.hooks(fwd_hooks=hooks):
            logits = logits_at(self.model.hf_model, one.inputs, one.places, gradients=True)
            values = torch.log_softmax(logits, -1)[
                torch.from_numpy(one.place).to(logits.device),
                torch.from_numpy(one.token).to(logits.device),
            ]
        part = np.concatenate(
            [self._part[tree][own] for tree, own in zip(one.tree, one.readings, strict=True)]
        )
        sign = torch.tensor([1.0, -1.0, 0.0, 0.0])[part].to(values)
        outputs = [z[layer] for layer in range(self.n_layers)]
        *odds, final = torch.autograd.grad(
            (sign * values).sum(), [*outputs, out[last]], retain_graph=True
        )
        loss = torch.autograd.grad(-values.sum(), outputs)
        found = torch.zeros(3, self.n_layers, outputs[0].shape[2], dtype=torch.float64)
        for layer, (own, gradient, slope) in enumerate(zip(outputs, odds, loss, strict=True)):
            change = self._new(layer, list(range(own.shape[2]))).to(own) - own.detach()
            found[0, layer] = (change * gradient).double().sum((0, 1, 3)).cpu()
            found[1, layer] = (own.detach() * slope).double().sum((1, 3)).abs().sum(0).cpu()
            written = torch.einsum("bthd,hdm->bthm", change, self._blocks[layer].attn.W_O.to(own))
            found[2, layer] = (written * final[:, :, None]).double().sum((0, 1, 3)).cpu()
        return found


def _keep(into: dict[int, Tensor], layer: int) -> Callable[..., Tensor]:
    """A hook that puts what it sees into a dictionary."""

    def hook(value: Tensor, hook: Any) -> Tensor:
        into[layer] = value
        return value

    return hook


def _z(layer: int) -> str:
    return f"blocks.{layer}.attn.hook_z"


def _chain(ids: Sequence[int]) -> TokenTree:
    n = len(ids)
    return TokenTree(
        tokens=np.array(ids),
        parent=np.arange(n) - 1,
        read_node=np.array([n - 1]),
        read_token=np.array([ids[-1]]),
    )


def random_sets(
    heads: Sequence[HeadId], n_heads: int, n: int, *, rng: np.random.Generator
) -> list[tuple[HeadId, ...]]:
    """Sets of as many other heads of the same layers.

    Args:
        heads: The set they are compared with; its heads are not drawn.
        n_heads: Heads per layer.
        n: Number of sets.
        rng: The generator they come from.

    Raises:
        InputError: if a layer has too few other heads.
    """
    by_layer: dict[int, list[int]] = {}
    for head in heads:
        by_layer.setdefault(head.layer, []).append(head.head)
    others = {layer: [h for h in range(n_heads) if h not in own] for layer, own in by_layer.items()}
    for layer, own in by_layer.items():
        if len(others[layer]) < len(own):
            raise InputError(
                f"layer {layer} has {len(own)} chosen heads and {len(others[layer])} others, so "
                "there is no random set of the same layers; choose fewer with --top"
            )
    drawn = []
    for _ in range(n):
        chosen = [
            HeadId(layer, int(h))
            for layer, own in sorted(by_layer.items())
            for h in rng.choice(others[layer], size=len(own), replace=False)
        ]
        drawn.append(tuple(chosen))
    return drawn


def change(summary: Mapping[str, float], base: Mapping[str, float]) -> dict[str, float]:
    """What removing heads changed in each summary."""
    return {f"d_{name}": summary[name] - base[name] for name in base}
