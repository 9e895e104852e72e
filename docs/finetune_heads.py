"""Train exported heads, and nothing else, to find both continuations equally likely.

    tdabias export RUN --top 10 --to heads.json
    python docs/finetune_heads.py heads.json starter tuned
    tdabias pvf --model smollm2-135m --model tuned --attribute pronouns

The loss is the squared difference, per token, of the log-probabilities of a triple's stereotype and
anti-stereotype continuation.
"""

import json
import sys
from pathlib import Path

import torch

from tda_bias import load_language_model, load_triples
from tda_bias.behaviour.head_weights import mask_gradients, read_export
from tda_bias.behaviour.likelihood import split_triples

EPOCHS, BATCH, RATE = 3, 8, 1e-3


def mean_log_prob(model, ids, start):
    """Mean log-probability of a continuation's tokens."""
    logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1]
    tokens = torch.tensor(ids[start:])
    return torch.log_softmax(logits, -1).gather(1, tokens[:, None]).mean()


def main(exported, data, out):
    """Train, and save the model with its tokenizer."""
    record = json.loads(Path(exported).read_text(encoding="utf-8"))
    model = load_language_model(record["model"]["name"], device="cpu")
    split = split_triples(model, load_triples(data, category=record["rule"]["category"]))
    torch.manual_seed(0)
    with mask_gradients(model.hf_model, read_export(record)) as parameters:
        optimiser = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
        for epoch in range(EPOCHS):
            total = 0.0
            for batch in torch.randperm(len(split)).split(BATCH):
                optimiser.zero_grad()
                for index in batch.tolist():
                    one = split[index]
                    pair = zip(one.ids[:2], one.start[:2], strict=True)
                    stereotype, anti = (mean_log_prob(model, *text) for text in pair)
                    loss = (stereotype - anti) ** 2 / len(batch)
                    loss.backward()
                    total += float(loss) * len(batch) / len(split)
                optimiser.step()
            print(f"epoch {epoch + 1}: mean squared difference {total:.3f}")
    model.hf_model.save_pretrained(out)
    model.tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
