"""Models that answer with a span: they point at its beginning and its end in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from tda_bias.models.language_model import batches_of_similar_width, padded
from tda_bias.models.load import LanguageModel
from tda_bias.models.logits import refuse_undefined
from tda_bias.types import Progress


@dataclass(frozen=True)
class SpanQuestion:
    """A question about a text, and candidates for its answer.

    Of each candidate the mention and the subject itself, as places in the text; None for the answer
    that the text has none, which such models give at their first token.
    """

    question: str
    context: str
    candidates: tuple[tuple[slice, slice] | None, ...]


def span_log_probs(
    model: LanguageModel,
    questions: Sequence[SpanQuestion],
    *,
    batch_size: int,
    progress: Progress,
) -> tuple[Float[np.ndarray, "question candidate"], Int[np.ndarray, "question candidate"]]:
    """Log-probabilities of candidates as spans of their texts, nats, and their tokens.

    A candidate's score is the square root of the probability of its first token as the beginning
    times that of its last as the end; of the starts with and without the words before it ("a group
    of"), and of the ends with and without the noun after it, the likelier counts.

    Source: [UnQover] section 3 and its code.
    """
    encoded = model.tokenizer(
        [one.question for one in questions],
        [one.context for one in questions],
        return_offsets_mapping=True,
    )
    ids: list[list[int]] = encoded["input_ids"]
    kinds = encoded.get("token_type_ids")
    model.check_length(max(map(len, ids)))
    shape = len(ids), len(questions[0].candidates)
    log_prob, n_tokens = np.empty(shape), np.empty(shape, dtype=int)
    done = 0
    for batch in batches_of_similar_width([len(row) for row in ids], batch_size):
        starts, ends = _span_ends(
            model, [ids[i] for i in batch], None if kinds is None else [kinds[i] for i in batch]
        )
        for index, start, end in zip(batch, starts, ends, strict=True):
            tokens = zip(encoded["offset_mapping"][index], encoded.sequence_ids(index), strict=True)
            spans = [
                (token, a, b) for token, ((a, b), of) in enumerate(tokens) if of == 1 and b > a
            ]
            for subject, two in enumerate(questions[index].candidates):
                if two is None:
                    log_prob[index, subject] = 0.5 * (start[0] + end[0])
                    n_tokens[index, subject] = 1
                    continue
                # Of the mention and of the subject itself: the token that holds its first
                # character, and the last one that begins before its end.
                first = [next(t for t, _, b in spans if b > place.start) for place in two]
                last = [[t for t, a, _ in spans if a < place.stop][-1] for place in two]
                log_prob[index, subject] = 0.5 * (max(start[first]) + max(end[last]))
                n_tokens[index, subject] = last[1] - first[1] + 1
        done += len(batch)
        progress(done, len(ids))
    return log_prob, n_tokens


def _span_ends(
    model: LanguageModel, rows: list[list[int]], kinds: list[list[int]] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of every token as the beginning and as the end of the answer."""
    ids, mask = padded(rows)
    given = {"input_ids": ids.to(model.device), "attention_mask": mask.to(model.device)}
    if kinds is not None:
        given["token_type_ids"] = padded(kinds)[0].to(model.device)
    with torch.inference_mode():
        output = model.hf_model(**given)
    padding = mask.to(model.device) == 0
    ends = []
    for logits in (output.start_logits, output.end_logits):
        real = logits.double().masked_fill(padding, -torch.inf)
        ends.append(real.log_softmax(-1).cpu().numpy())
    refuse_undefined(model, ends)
    return ends[0], ends[1]
