"""Made-up measures and models for comparisons."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tda_bias.comparison.outcome import Guard, Outcome, item_rows


@dataclass
class MadeUp:
    """A measure whose values are a function of the model's name."""

    values: dict[str, list[float]]
    name: str = "madeup"
    guard: Guard | None = None
    cluster: int = 2
    of_both = False
    texts: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def outcomes(self):
        return [Outcome("number", "bias", "nats", "a", 0.0, True, self.guard)]

    @property
    def about(self):
        return {"texts": self.name}

    def items(self, model, *, batch_size, progress=None):
        self.asked.append(model.name)
        values = self.values[model.name]
        n = np.arange(len(values))
        return item_rows("number", item=n, cluster=n // self.cluster, value=values)


def paired(before, after, cluster, weight=1.0) -> pd.DataFrame:
    table = pd.DataFrame({"cluster": [str(c) for c in cluster], "before": before, "after": after})
    return table.assign(weight=weight)


def edited(source: Path, target: Path, scale: float = 0.5) -> Path:
    """A folder with the same model, one matrix of it smaller."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source)
    with torch.no_grad():
        model.transformer.h[0].attn.c_proj.weight.mul_(scale)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source).save_pretrained(target)
    return target


def sharpened(model, scale: float = 1.3):
    """The same model with larger weights, so that its heads attend more sharply."""
    with torch.no_grad():
        for parameter in model.hf_model.parameters():
            parameter.mul_(scale)
    return model
