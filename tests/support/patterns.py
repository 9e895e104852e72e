"""Triples of random tokens, and every pattern of a model on them."""

import torch

from tda_bias.patterns.capture import PatternReader
from tda_bias.patterns.passes import TokenizedTriple

LENGTHS = [(9, 7, 12), (5, 5, 6), (14, 10, 11), (4, 8, 3)]


def made_up(vocabulary: int, prefixes=(4, 3, 8, 1)) -> list[TokenizedTriple]:
    """Triples of random tokens with known prefixes."""
    generator = torch.Generator().manual_seed(0)

    def tokens(n: int) -> list[int]:
        return torch.randint(4, vocabulary, (n,), generator=generator).tolist()

    triples = []
    for lengths, prefix in zip(LENGTHS, prefixes, strict=True):
        common = tokens(prefix)
        ids = [[*common, 4 + role, *tokens(n - prefix - 1)] for role, n in enumerate(lengths)]
        triples.append(TokenizedTriple(tuple(ids), prefix))
    return triples


def read(model, triples, *, batch_size: int, shared: bool) -> dict[int, torch.Tensor]:
    """Every text's patterns, (layer, head, query, key)."""
    found: dict[int, list[torch.Tensor]] = {}

    def keep(batch) -> None:
        for index, text in enumerate(batch.text.tolist()):
            n = int(batch.length[index])
            found.setdefault(text, []).append(batch.patterns[index, :, :, :n, :n].clone())

    PatternReader(model, batch_size=batch_size).read(triples, keep, shared=shared)
    return {text: torch.cat(parts) for text, parts in found.items()}
