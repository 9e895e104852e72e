"""Every architecture of transformers that reads text, small and random, through every command.

    python -m tests.support.architectures [NAME ...]

prints a row for each: what works, exactly; what is refused; and what is wrong or ends with a
traceback. Without names it tries all and writes ``docs/architectures.md``.
"""

import contextlib
import io
import logging
import re
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from unittest import mock

import torch

from tda_bias.ablation.head_weights import refuse_untrainable
from tda_bias.debias.learners import HeadMask
from tda_bias.models.attention import attention_layers
from tda_bias.models.hooks import require_separate_heads
from tda_bias.models.load import LanguageModel, load_language_model
from tda_bias.types import HeadId, InputError
from tdabias_cli.main import run

LARGEST = 4_000_000
# Windows are shorter than the texts, and four layers are enough for every kind of a hybrid.
SIZES = {
    **dict.fromkeys(
        ["hidden_size", "d_model", "n_embd", "dim", "emb_dim", "word_embed_proj_dim", "lru_width"],
        32,
    ),
    **dict.fromkeys(
        [
            "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers",
            "decoder_layers", "num_encoder_layers", "num_decoder_layers", "num_attention_heads",
            "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
            "num_encoder_attention_heads", "num_decoder_attention_heads", "num_experts",
            "num_local_experts", "n_routed_experts", "moe_num_experts", "state_size", "rotary_dim",
            "mamba_d_state", "mamba_n_heads", "mamba_num_heads", "linear_num_value_heads",
        ],
        4,
    ),
    **dict.fromkeys(
        [
            "intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size",
            "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "n_inner", "d_inner",
            "ffn_hidden_size", "expert_ffn_hidden_size", "intermediate_size_mlp",
        ],
        48,
    ),
    **dict.fromkeys(
        [
            "num_key_value_heads", "num_kv_heads", "num_experts_per_tok", "linear_num_key_heads",
            "index_n_heads", "pad_token_id",
        ],
        2,
    ),
    **dict.fromkeys(
        [
            "head_dim", "d_kv", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
            "kv_lora_rank", "index_head_dim", "swa_head_dim", "linear_key_head_dim",
            "linear_value_head_dim", "mamba_chunk_size", "query_pre_attn_scalar",
            "hidden_size_per_layer_input", "sliding_window", "window_size",
            "attention_window_size", "attention_window",
        ],
        8,
    ),
    **dict.fromkeys(["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"], 128),
    **dict.fromkeys(["n_group", "topk_group", "eos_token_id"], 1),
    **dict.fromkeys(["embedding_size", "mamba_d_head", "mamba_head_dim"], 16),
    "q_lora_rank": 12, "index_topk": 128, "bos_token_id": 0, "num_kv_shared_layers": 0,
}  # fmt: skip
WORDS = ("vocab_size", "src_vocab_size", "tgt_vocab_size", "n_words", "vocab_size_per_layer_input")
_LINEAR = {"layer_types": ["linear_attention", "full_attention"] * 2}
_CONV = {"layer_types": ["conv", "full_attention"] * 2}
_UNGROUPED = {"num_key_value_heads": 4}
_DELTA = {
    **_UNGROUPED, **_LINEAR, "linear_num_heads": 4, "linear_head_dim": 8,
    "num_experts_per_token": 2, "mlp_layer_types": ["dense", "sparse"] * 2,
}  # fmt: skip
_ZAMBA = {
    **_UNGROUPED, "layers_block_type": ["linear_attention", "hybrid"] * 2,
    "attention_hidden_size": 64, "attention_head_dim": 16,
}  # fmt: skip
# What else a small model of an architecture takes.
CHANGES = {
    **dict.fromkeys(
        [
            "axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite",
            "glm_moe_dsa", "longcat_flash", "minicpm3", "youtu", "dots3_note_text", "esmc",
        ],
        _UNGROUPED,
    ),
    **dict.fromkeys(["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid"], _LINEAR),
    "bailing_hybrid": {**_DELTA, "num_expert_group": 1},
    "kimi_linear": _DELTA,
    "bamba": {"attn_layer_indices": [1, 3]},
    "granitemoehybrid": {**_LINEAR, "shared_intermediate_size": 48},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "dots1": {"n_shared_experts": 1, "first_k_dense_replace": 1},
    "ernie4_5_moe": {"moe_k": 2, "moe_layer_end_index": 3},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "lfm2": _CONV,
    "lfm2_moe": {**_CONV, "num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "n_groups": 1, "chunk_size": 8},
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "full_attention", "moe", "full_attention"],
        "n_groups": 1, "ssm_state_size": 4, "chunk_size": 8,
        "moe_shared_expert_intermediate_size": 48,
    },
    "neomme": {"head_dim": 16},
    "squeezebert": {
        "embedding_size": 32,
        **{f"{part}_groups": 2 for part in ("q", "k", "v", "intermediate", "output")},
    },
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 16},
    "cpmant": {"dim_head": 8, "dim_ff": 48},
    "ctrl": {"dff": 48},
    "roc_bert": {
        "pronunciation_vocab_size": 330, "shape_vocab_size": 330, "pronunciation_embed_dim": 8,
        "shape_embed_dim": 8,
    },
    "reformer": {
        "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 16], "attention_head_size": 8,
        "feed_forward_size": 48, "is_decoder": False, "attn_layers": ["local", "lsh"] * 2,
    },
    "xmod": {"default_language": "en_XX"},
    "zamba": {**_ZAMBA, "use_mamba_kernels": False, "n_mamba_heads": 2},
    "zamba2": {
        **_ZAMBA, "layer_types": ["linear_attention", "hybrid"] * 2, "adapter_rank": 4,
        "n_mamba_heads": 4, "mamba_headdim": 16, "chunk_size": 8, "kv_channels": 8,
        "num_query_groups": 4, "hybrid_layer_ids": [1, 3], "mamba_ngroups": 1,
    },
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16},
    "perceiver": {
        "d_latents": 32, "num_latents": 16, "num_blocks": 1, "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4, "num_cross_attention_heads": 4, "qk_channels": 32,
        "v_channels": 32,
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "qwen2": {"use_sliding_window": True, "max_window_layers": 2},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32},
    "switch_transformers": {"num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 2},
    "nllb-moe": {"encoder_sparse_step": 2, "decoder_sparse_step": 2},
    "fsmt": {"langs": ["en", "de"]},
    "marian": {"decoder_start_token_id": 1},
    "bert-generation": {"is_decoder": True},
}  # fmt: skip
# Forms of an architecture that differ in where its heads are.
FORMS = {
    "falcon, new decoder": ("falcon", {"new_decoder_architecture": True, "multi_query": False}),
    "falcon, new decoder, multi_query": (
        "falcon", {"new_decoder_architecture": True, "multi_query": True},
    ),
    "falcon, heads of its own": ("falcon", {"multi_query": False, "num_kv_heads": 4}),
    "gpt_bigcode, multi_query=False": ("gpt_bigcode", {"multi_query": False}),
    "phi, qk_layernorm": ("phi", {"qk_layernorm": True}),
}  # fmt: skip
# What other tests of single architectures do not have.
SAMPLE = (
    "deberta-v2", "deepseek_v3", "diffllama", "falcon, new decoder", "gemma3_text", "gpt_oss",
    "mamba", "modernbert", "nemotron_h", "qwen3_next", "t5", "xlnet",
)  # fmt: skip
PAGE_PATH = Path("docs/architectures.md")


def names() -> list[str]:
    """Every architecture of transformers whose configuration is of one model, of text."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    mappings = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    every = sorted({name for mapping in mappings for name in mapping})
    parts = {"attn_config", "ffn_config", "esmfold_config"}
    return [
        *(name for name in every if parts >= set(getattr(CONFIG_MAPPING[name], "sub_configs", {}))),
        *FORMS,
    ]


def tiny(name: str, vocabulary: int):
    """A model of an architecture with random weights, large enough to matter."""
    from transformers import CONFIG_MAPPING

    from tda_bias.models.load import auto_class

    kind, more = FORMS.get(name, (name, {}))
    known = CONFIG_MAPPING[kind]().to_dict()
    sizes = {key: value for key, value in SIZES.items() if key in known}
    sizes |= {key: vocabulary for key in WORDS if key in known}
    config = CONFIG_MAPPING[kind](**{**sizes, **CHANGES.get(kind, {}), **more})
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 1
    config._attn_implementation = "eager"
    with torch.device("meta"):
        size = auto_class(config, "language").from_config(config).num_parameters()
    if size > LARGEST:
        raise ValueError(f"has {size} parameters")
    torch.manual_seed(0)
    model = auto_class(config, "language").from_config(config, attn_implementation="eager").float()
    for parameter, values in model.named_parameters():
        # Sharp enough attention that a wrong mask cannot hide.
        if values.ndim > 1 and values.requires_grad:
            scale = 1 if "embed" in parameter or "wte" in parameter else 0.3
            values.data.normal_(0, scale)
    return model.eval()


# -- literal -----------------------------------------------------------------------------------


def patterns_of(hf_model, ids: list[int]) -> list[torch.Tensor]:
    """``output_attentions`` of one text, of each layer that has one."""
    tokens = torch.tensor([ids])
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    stack = hf_model.get_encoder() if hf_model.config.is_encoder_decoder else hf_model
    with torch.no_grad():
        returned = stack(**given, output_attentions=True).attentions or ()
    return [pattern[0] for pattern in returned if isinstance(pattern, torch.Tensor)]


def logits_of(hf_model, ids: list[int]) -> torch.Tensor:
    tokens = torch.tensor([ids])
    more = {"decoder_input_ids": tokens} if hf_model.config.is_encoder_decoder else {}
    with torch.no_grad():
        return hf_model(input_ids=tokens, **more).logits


@contextlib.contextmanager
def attending_to_nothing(n_heads: int, heads: dict[int, list[int]]):
    """Softmaxes that make patterns give 0 for some heads of the first, second, ... layer."""
    softmax, calls = torch.softmax, Counter()

    def without(values, dim=-1, *_, dtype=None, **__):
        made = softmax(values, dim, dtype=dtype)
        shape = made.shape
        if len(shape) > 2 and shape[-2] > 1 and n_heads in (shape[-3], shape[0]):
            made = made.clone()
            for head in heads.get(calls["pattern"], ()):
                made[..., head, :, :] = 0
            calls["pattern"] += 1
        return made

    with (
        mock.patch.object(torch.nn.functional, "softmax", without),
        mock.patch.object(torch, "softmax", without),
        mock.patch.object(torch.Tensor, "softmax", without),
    ):
        yield


def without_parts(heads: list[int], n_heads: int):
    """A hook that takes some heads' parts from a projection's input."""

    def hook(_, arguments):
        parts = arguments[0].clone().unflatten(-1, (n_heads, -1))
        parts[..., heads, :] = 0
        return (parts.flatten(-2), *arguments[1:])

    return hook


# -- one architecture --------------------------------------------------------------------------


@dataclass
class Row:
    """Outcome of an architecture: a word for each column, and the messages of refusals."""

    name: str
    cells: dict[str, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def tried(self, column: str, check) -> None:
        """Run a check and note what became of it."""
        try:
            self.cells[column] = check()
        except InputError as error:
            self.cells[column], self.said[column] = "refused", str(error)
        except AssertionError as error:
            self.cells[column], self.said[column] = "WRONG", str(error).strip()[:200]
        except Exception as error:
            said = f"{type(error).__name__}: {error}".replace("\n", " ")
            self.cells[column], self.said[column] = "TRACEBACK", said[:200]

    def __str__(self) -> str:
        return f"| {self.name} | {' | '.join(self.cells.values())} |"


COLUMNS = ("patterns", "scores", "pvf", "edit", "debias")


def row_of(name: str, tokenizer, folder: Path) -> Row:
    """Every check of one architecture.

    Raises:
        Exception: of any kind, if no small model of it can be made or run.
    """
    made = tiny(name, len(tokenizer) + 4)  # a few tokenizers add a token when they are read
    logits_of(made, list(range(5, 25)))
    made.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    result, model = Row(name), str(folder / "model")
    # Read back, because some (Youtu) come back with the row of the padding set to 0.
    plain = cache(partial(load_language_model, model, device="cpu"))
    eager = cache(partial(load_language_model, model, device="cpu", attention="eager"))
    result.tried("patterns", lambda: patterns(model, eager().hf_model, tokenizer))
    result.tried("scores", lambda: scores(plain()))
    result.tried("pvf", lambda: pvf(plain()))
    result.tried("edit", lambda: edit(model, folder / "edited", eager().hf_model))
    result.tried("debias", lambda: debias(model))
    return result


def patterns(folder: str, reference, tokenizer) -> str:
    from tda_bias import load_triples
    from tda_bias.heads.patterns import PatternReader
    from tda_bias.heads.texts import tokenized_groups
    from tda_bias.models.load import load_model
    from tests.support.patterns import made_up

    model = load_model(folder, device="cpu")
    tokenized_groups(model, load_triples("starter", category="gender", limit=2), None)
    contexts = made_up(len(tokenizer))
    texts = [ids for context in contexts for ids in context.ids]
    reader = PatternReader(model, batch_size=8, probes=contexts)
    found = {}
    for batch in reader.read(contexts):
        for index, (text, n) in enumerate(zip(batch.text, batch.length, strict=True)):
            found[int(text)] = batch.patterns[index, :, :, :n, :n].clone()
    assert sorted(found) == list(range(len(texts)))
    for number, ids in enumerate(texts):
        expected = torch.stack(patterns_of(reference, ids))
        assert found[number].shape == expected.shape, "other layers or heads"
        difference = float((found[number] - expected).abs().max())
        assert difference <= 1e-4, f"patterns differ by {difference:.2g}"
    return "own attention" if model.bridge is None else "TransformerLens"


def scores(model: LanguageModel) -> str:
    from tda_bias import load_triples
    from tda_bias.scores.likelihood import triple_likelihoods
    from tests.support.literal import continuations

    triples = load_triples("starter", category="gender", limit=1)[:2]
    # A plain model: the literal reads each text alone, one token after the other.
    for triple, read in zip(triples, triple_likelihoods(model, triples), strict=True):
        expected = continuations(model, triple)
        difference = max(abs(a - b) for a, b in zip(read.total, expected, strict=True))
        assert difference <= 1e-2, f"log-probabilities differ by {difference:.2g}"
    return model.kind


def pvf(model: LanguageModel) -> str:
    from pvf.reading import score_preferences
    from pvf.words import Template, WordClasses, WordList

    classes = WordClasses("some", "test", {"male": ("he", "man"), "female": ("she", "heiress")}, ())
    templates = [Template("The [X] said that [Y]", 1), Template("The [X], who knew, felt [Y]", 1)]
    words = WordList("some", "test", ("nurse", "software developer"))
    score_preferences(model, words, templates, classes)
    return "yes"


def edit(folder: str, out: Path, reference) -> str:
    heads = [HeadId(0, 1), HeadId(3, 2)]
    with contextlib.suppress(InputError):
        layers = attention_layers(LanguageModel(reference, None, "reference"))
        heads = [HeadId(layers[0].number, 1), HeadId(layers[-1].number, 2)]
    named = [part for head in heads for part in ("--head", str(head))]
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = run(
            ["edit", "--model", folder, *named, "--how", "zero", "--out", str(out), "--quiet"]
        )
    if status:
        raise InputError(errors.getvalue().strip())
    edited = load_language_model(str(out), device="cpu", attention="eager")
    order = [layer.number for layer in layers]
    off: dict[int, list[int]] = {}
    for head in heads:  # both may be of the one layer with attention
        off.setdefault(order.index(head.layer), []).append(head.head)
    ids = list(range(5, 25))
    expected = logits_of(edited.hf_model, ids)
    with attending_to_nothing(layers[0].n_heads, off):
        literal = logits_of(reference, ids)
    size = float(literal.abs().max())
    difference = float((literal - expected).abs().max())
    effect = float((logits_of(reference, ids) - expected).abs().max())
    assert effect > 1e-6, "the edit changed nothing"
    if difference <= 1e-4 + 1e-5 * size:
        return "exact"
    with contextlib.ExitStack() as stack:
        for layer in layers:
            parts = [head.head for head in heads if head.layer == layer.number]
            hook = layer.projection.register_forward_pre_hook(without_parts(parts, layer.n_heads))
            stack.callback(hook.remove)
        difference = float((logits_of(reference, ids) - expected).abs().max())
    assert difference <= 1e-4 + 1e-5 * size, f"logits differ by {difference:.2g} of {effect:.2g}"
    return "exact, after a norm"


def debias(folder: str) -> str:
    """The slices of a head matter to that head and to no other."""
    refuse_untrainable(folder)
    model = load_language_model(folder, device="cpu", attention="eager")
    layers = attention_layers(model)
    require_separate_heads(model, layers)
    head = HeadId(layers[-1].number, 1)
    try:
        slices_are_the_head_s_own(model, head, ("q", "k", "v", "o"))
    except AssertionError:
        # Queries and keys that are normalised over all heads together move a little with one's.
        slices_are_the_head_s_own(load_language_model(folder, attention="eager"), head, ("v", "o"))
        return "exact, after a norm"
    return "exact"


def slices_are_the_head_s_own(model, head: HeadId, parts) -> None:
    """Draw other values for the slices: what changes must be the head, and only that."""
    layers = [layer.number for layer in attention_layers(model)]
    order, n_heads = layers.index(head.layer), attention_layers(model)[0].n_heads
    slices = [piece for piece in HeadMask(model.hf_model, [head]).slices if piece.part in parts]
    heads = [head.head, *{other for piece in slices for other in piece.shared_with}]
    ids = list(range(5, 25))

    def shown() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        every = logits_of(model.hf_model, ids)
        with attending_to_nothing(n_heads, {order: heads}):
            others = logits_of(model.hf_model, ids)
        found = patterns_of(model.hf_model, ids)
        return every, others, found[order if len(found) == len(layers) else head.layer]

    before = shown()
    named = dict(model.hf_model.named_parameters())
    for piece in slices:
        part = piece.of(named[piece.parameter].data)
        part.add_(torch.randn_like(part))
    every, others, found = (
        (b - a).abs().flatten(1).amax(1) for a, b in zip(before, shown(), strict=True)
    )
    assert float(every.max()) > 1e-6, "the slices matter to nothing"
    assert float(others.max()) <= 1e-4, f"they matter to other heads, by {others.max():.2g}"
    moved = {int(number) for number in (found > 1e-6).nonzero()}
    expected = set(heads) if "q" in parts else set()
    assert moved == expected, f"they move the patterns of {moved}"


# -- all ---------------------------------------------------------------------------------------

PAGE = """# Architectures

Written by `make architectures`: for every architecture of transformers {version} that reads text, a
small model with random weights went through the commands. Architectures with one outcome share a
row.

- *patterns* (`heads`): which way they are read, where they are those that the model itself returns
  (`output_attentions`).
- *scores* (`stereoset`, `pairs`, `compare`): the kind of model, where log-probabilities are those
  of every text alone.
- *pvf*: whether words are read.
- *edit* (and `ablate`): exact where the written model is the one whose heads attend to nothing.
  After a norm: what heads read is normalised together first.
- *debias*: exact where what is trained belongs to the head and to no other. After a norm: queries
  and keys are normalised over all heads together.
- *refused*: the command says why in one line and computes nothing.

| patterns | scores | pvf | edit | debias | architectures |
|---|---|---|---|---|---|
{rows}

No small model could be made of: {without}.
"""


def grouped(rows: list[Row]) -> str:
    """Rows of the page: an outcome and the architectures that have it, the most frequent first."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        names.setdefault(tuple(row.cells.values()), []).append(row.name)
    most_first = sorted(names.items(), key=lambda each: -len(each[1]))
    return "\n".join(f"| {' | '.join(cells)} | {'; '.join(of)} |" for cells, of in most_first)


def on_page(name: str, page: str) -> list[str]:
    """The outcome of an architecture as the page has it, by ``COLUMNS``."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    [cells] = [cells for *cells, names in rows if name in names.split("; ")]
    return cells


def quiet() -> None:
    """Keep what libraries say of random models to themselves."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def main(chosen: list[str]) -> int:
    """Try architectures, print what became of them, and write the page if it was all."""
    import transformers

    from tests.support.tokenizers import subwords_in

    quiet()
    rows: list[Row] = []
    without: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as base:
        tokenizer = subwords_in(Path(base) / "tokenizer")
        for name in chosen or names():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    rows.append(row_of(name, tokenizer, Path(folder)))
                except Exception as error:
                    without[name] = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:150]
                    print(f"| {name} | not made: {without[name]} |", flush=True)
                    continue
            print(rows[-1], flush=True)
            for column, said in rows[-1].said.items():
                print(f"      {column}: {said}", flush=True)
    for column in COLUMNS:
        print(column, dict(Counter(each.cells[column] for each in rows)))
    if not chosen:
        page = PAGE.format(
            version=transformers.__version__,
            rows=grouped(rows),
            without=", ".join(without),
        )
        PAGE_PATH.write_text(page, encoding="utf-8")
    bad = [each for each in rows if {"WRONG", "TRACEBACK"} & set(each.cells.values())]
    return len(bad) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
