"""Which words of a continuation pay attention to the target, in one head: of triples and of twins.

    TDABIAS_STEREOSET=FILE python -m benchmarks.paying_words MODEL HEAD CATEGORY LIMIT

Prints the mean share that a continuation pays to the words of the target, for stereotype and
anti-stereotype texts of triples and of the first twin of each, and the words that pay most.
"""

from __future__ import annotations

import os
import sys

import pandas as pd
import torch

from tda_bias.heads.token_places import token_places
from tda_bias.models.load import load_language_model
from tda_bias.triples import load_triples
from tda_bias.twins import make_twins
from tda_bias.types import ROLES, HeadId

READ = ROLES[:2]
MOST = 25


def payments(name: str, head: HeadId, category: str, limit: int) -> pd.DataFrame:
    """A row per text: mean and largest share that its continuation pays, and the word that does."""
    model = load_language_model(name, device="cpu", attention="eager")
    data = os.environ["TDABIAS_STEREOSET"]
    twins = make_twins(load_triples(data, category=category))
    rows = []
    for triple in load_triples(data, category=category, limit=limit):
        for version, read in zip(("triple", "twin"), (triple, *twins.of(triple)), strict=False):
            (places,) = token_places(model.tokenizer, [read], roles=READ)
            for role, where, text in zip(READ, places, read.texts(), strict=False):
                if where.missing:
                    continue
                ids = model.tokenizer(text, return_tensors="pt")["input_ids"]
                with torch.inference_mode():
                    patterns = model.hf_model(input_ids=ids, output_attentions=True).attentions
                pattern = patterns[head.layer][0, head.head].double().numpy()
                paid = pattern[where.continuation][:, where.target].sum(1)
                payer = ids[0, where.continuation][int(paid.argmax())]
                rows.append(
                    {
                        "about": read.group,
                        "version": version,
                        "role": role,
                        "mean": paid.mean(),
                        "largest": paid.max(),
                        "word": model.tokenizer.decode(payer).strip(),
                    }
                )
    return pd.DataFrame(rows)


def main() -> None:
    """Print both tables."""
    if len(sys.argv) != 5 or not os.environ.get("TDABIAS_STEREOSET"):
        sys.exit(__doc__)
    name, head, category, limit = sys.argv[1:]
    paid = payments(name, HeadId.of(head), category, int(limit))
    print(paid.groupby(["version", "role"])[["mean", "largest"]].mean().round(3).to_string())
    own = paid[paid["version"] == "triple"].nlargest(MOST, "mean")
    print(own[["about", "role", "mean", "word"]].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
