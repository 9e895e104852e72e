"""Changes while a model runs: of what its heads write, and of the precision it computes in.

One way for ablation, edits and gates. What a head writes is its part of the input of its layer's
output projection (``AttentionLayer``).
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from tda_bias.models.attention import AttentionLayer
from tda_bias.models.eager import EnoughError, body_of, probe_ids
from tda_bias.models.language_model import LanguageModel, batches_of_similar_width, padded
from tda_bias.types import HeadId, InputError, Precision

# From what heads write and their layer to what is to stand in its place.
Change = Callable[[Float[Tensor, "row token head d"], AttentionLayer], Tensor]


def require_heads(
    model: LanguageModel, layers: Iterable[AttentionLayer], heads: Iterable[HeadId]
) -> None:
    """Refuse heads that a model does not have."""
    there = {layer.number: layer.n_heads for layer in layers}
    for head in heads:
        if not 0 <= head.head < there.get(head.layer, 0):
            raise InputError(
                f"{head} does not exist: `model` {model.name} has layers {min(there)} to "
                f"{max(there)} with heads 0 to {max(there.values()) - 1}"
            )


@contextmanager
def heads_changed(layers: Iterable[AttentionLayer], change: Change) -> Iterator[None]:
    """Change what the heads of layers write, for whatever runs inside.

    ``change`` leaves its argument as it is.
    """

    def on_input(layer: AttentionLayer) -> Callable[..., tuple[Any, ...]]:
        def hook(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
            changed = change(layer.by_head(arguments[0]), layer)
            return (changed.flatten(-2), *arguments[1:])

        return hook

    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.projection.register_forward_pre_hook(on_input(layer)))
        yield


# Functions that end in patterns, and one that ends in what heads read by them.
_SOFTMAXES = (torch.softmax, Tensor.softmax, nn.functional.softmax)
_FUSED = nn.functional.scaled_dot_product_attention


class _OneHeadPerRow(TorchFunctionMode):
    """Leaves row i of a batch the attention of head i alone, in the layer that runs."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.layer: int | None = None
        self._n_heads = n_heads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if self.layer is None or func not in (*_SOFTMAXES, _FUSED):
            return output
        # Some have rows and heads in one dimension.
        n, shape = self._n_heads, output.shape
        if (len(shape) == 4 and shape[0] == shape[1] == n) or (
            len(shape) == 3 and len(output) == n * n
        ):
            own = torch.eye(n, dtype=torch.bool, device=output.device)
            output = output.view(n, n, *shape[-2:]).masked_fill(~own[:, :, None, None], 0)
        return output.view(shape)


def require_separate_heads(model: LanguageModel, layers: Sequence[AttentionLayer]) -> None:
    """Make sure that each head's attention reaches its own part of the projection, and no other.

    Tried with a batch of one row per head, in which the patterns of all other heads are nothing:
    all that enters the projection must then be in the part of the row's head.

    Raises:
        InputError: if it does not, as where heads are subtracted from each other (DiffLlama) or
            something else is added to them (ConvBERT).
    """
    n_heads = layers[0].n_heads
    mode = _OneHeadPerRow(n_heads)
    alike: dict[int, bool] = {}

    def enter(layer: AttentionLayer) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            mode.layer = layer.number

        return hook

    def compare(z: Tensor, layer: AttentionLayer) -> Tensor:
        mode.layer = None
        written = (z != 0).any(-1).any(1)
        own = torch.eye(n_heads, dtype=torch.bool, device=z.device)
        # A head may read nothing, a layer may not; FSMT has tokens where others have rows.
        shaped = written.shape == own.shape and bool(written.any())
        alike[layer.number] = shaped and not bool((written & ~own).any())
        return z

    ids = probe_ids(model.hf_model)[:1].repeat(n_heads, 1)
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(layer.block.register_forward_pre_hook(enter(layer)))
        stack.enter_context(heads_changed(layers, compare))
        stack.enter_context(torch.inference_mode())
        stack.enter_context(stopped_before(layers[-1].projection))
        stack.enter_context(mode)
        body_of(model.hf_model)(input_ids=ids, attention_mask=torch.ones_like(ids))
    elsewhere = [layer.number for layer in layers if not alike.get(layer.number)]
    if elsewhere:
        raise InputError(
            f"`model` {model.name} ({model.architecture}) does not hand on what each head of layer "
            f"{elsewhere[0]} reads in a part of its own, so single heads cannot be changed"
        )


@contextmanager
def stopped_before(module: nn.Module) -> Iterator[list[Tensor]]:
    """End the forward pass that runs inside before it reaches a module.

    Yields:
        A list that then holds the module's first argument.
    """
    given: list[Tensor] = []

    def stop(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        given.extend(arguments[:1])
        raise EnoughError

    with suppress(EnoughError), module.register_forward_pre_hook(stop):
        yield given


def head_means(
    model: LanguageModel,
    layers: Sequence[AttentionLayer],
    texts: Sequence[Sequence[int]],
    *,
    batch_size: int,
) -> Float[Tensor, "layer head d"]:
    """Mean of what every head writes, over all places of texts, given as token ids."""
    model.check_length(max(map(len, texts)))
    body = body_of(model.hf_model)
    total: dict[int, Tensor] = {}
    for batch in batches_of_similar_width([len(ids) for ids in texts], batch_size):
        ids, mask = (part.to(model.device) for part in padded([texts[i] for i in batch]))
        real = mask.bool()

        def add(z: Tensor, layer: AttentionLayer, real: Tensor = real) -> Tensor:
            of_batch = z[real].double().sum(0).cpu()
            before = total.get(layer.number)
            total[layer.number] = of_batch if before is None else before + of_batch
            return z

        # Hooks run in the order in which they were put there: the last layer is added first.
        last = layers[-1].projection
        with heads_changed(layers, add), torch.inference_mode(), stopped_before(last):
            body(input_ids=ids, attention_mask=mask)
    n = sum(map(len, texts))
    return torch.stack([total[layer.number] / n for layer in layers])


# -- precision ------------------------------------------------------------------------------------


def slowdown_of_half(device: torch.device) -> float:
    """Time of a matrix product in bfloat16 over that in float32, measured now.

    Tens on a processor without instructions for bfloat16; 1 on other devices, which are not
    measured.
    """
    if device.type != "cpu":
        return 1.0
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(256, 256, dtype=dtype)
        seconds.append(min(timeit.repeat("m @ m", globals={"m": matrix}, repeat=5, number=1)))
    return seconds[1] / seconds[0]


class Computing:
    """A way to compute while a model is trained, checked or read.

    In ``bfloat16`` matrix products are computed in half precision (``torch.autocast``), which is
    faster where the hardware has instructions for it. Weights that learn keep their single
    precision; those that do not are rounded once instead of at every pass, which takes half as
    much memory again.

    Args:
        model: A model in single precision.
        precision: ``float32`` leaves everything as it is.
        frozen: Nothing learns, whatever the parameters say of themselves, and no backward pass
            follows. The output embeddings are then not rounded: a logit in half precision is off
            by up to a sixteenth, in a confident prediction without anything to average it out.

    Raises:
        InputError: if the precision is not known, or the model is in another one already.
    """

    def __init__(
        self, model: LanguageModel, precision: Precision = "float32", *, frozen: bool = False
    ) -> None:
        if precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise InputError(f"`precision` must be one of {known}; got {precision!r}")
        if precision != "float32" and model.dtype != torch.float32:
            raise InputError(
                f"`precision` {precision} rounds a model in float32; `model` {model.name} is in "
                f"{model.dtype_name}"
            )
        self._hf_model: Any = model.hf_model
        self._frozen = frozen
        self._device = model.device.type
        self._half = precision == "bfloat16"
        self._rounded: dict[Tensor, Tensor] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """The model as it computes here, for forward passes; backward passes follow them."""
        if not self._half:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(torch.autocast(self._device, torch.bfloat16))
            if self._device == "cpu" and not self._frozen:
                # Here the fused attention's backward pass is slow in half precision.
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            for module in self._hf_model.modules():
                # What others have put there stays: accelerate, or this very function around itself.
                if type(module) is nn.Linear and "forward" not in vars(module):
                    product = self._product(module)
                    if product is not None:
                        vars(module)["forward"] = product
                        stack.callback(vars(module).pop, "forward")
            yield

    def _product(self, module: nn.Linear) -> Callable[[Tensor], Tensor] | None:
        if self._frozen and module is self._hf_model.get_output_embeddings():
            return partial(in_single_precision, module.weight, module.bias)
        if module.weight.requires_grad and not self._frozen:
            return None
        if module.weight not in self._rounded:
            self._rounded[module.weight] = module.weight.detach().bfloat16()
        rounded = self._rounded[module.weight]

        def product(given: Tensor) -> Tensor:
            half = torch.is_autocast_enabled(self._device)
            return nn.functional.linear(given, rounded if half else module.weight, module.bias)

        return product


def in_single_precision(weight: Tensor, bias: Tensor | None, given: Tensor) -> Tensor:
    """A linear map that is not rounded, whatever runs around it."""
    with torch.autocast(given.device.type, enabled=False):
        return nn.functional.linear(given.to(weight.dtype), weight, bias)
