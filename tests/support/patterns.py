"""Triples of random tokens, and every pattern of a model on them."""

import torch

from tda_bias.heads.patterns import PatternReader
from tda_bias.heads.texts import ContextTexts

LENGTHS = [(9, 7, 12), (5, 5, 6), (14, 10, 11), (4, 8, 3)]


def made_up(vocabulary: int, prefixes=(4, 3, 8, 1)) -> list[ContextTexts]:
    """Triples of random tokens with known prefixes."""
    generator = torch.Generator().manual_seed(0)

    def tokens(n: int) -> list[int]:
        return torch.randint(4, vocabulary, (n,), generator=generator).tolist()

    triples = []
    for lengths, prefix in zip(LENGTHS, prefixes, strict=True):
        common = tokens(prefix)
        ids = [[*common, 4 + role, *tokens(n - prefix - 1)] for role, n in enumerate(lengths)]
        triples.append(ContextTexts(tuple(ids), prefix))
    return triples


def read(model, triples, *, batch_size: int, shared: bool) -> dict[int, torch.Tensor]:
    """Every text's patterns, (layer, head, query, key)."""
    found: dict[int, torch.Tensor] = {}
    for batch in PatternReader(model, batch_size=batch_size).read(triples, shared=shared):
        for index, text in enumerate(batch.text.tolist()):
            n = int(batch.length[index])
            assert text not in found
            found[text] = batch.patterns[index, :, :, :n, :n].clone()
    return found


@torch.no_grad()
def hugging_face(hf_model, ids: list[int]) -> torch.Tensor:
    """``output_attentions`` of one text under eager attention, encoder's where there is one."""
    tokens = torch.tensor([ids])
    if hf_model.config.is_encoder_decoder:
        out = hf_model(input_ids=tokens, decoder_input_ids=tokens[:, :1], output_attentions=True)
        return torch.cat(out.encoder_attentions)
    return torch.cat(hf_model(input_ids=tokens, output_attentions=True).attentions)
