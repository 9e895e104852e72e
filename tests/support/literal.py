"""Log-probabilities of continuations as they are defined: text by text, token by token."""

import torch


def ids_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def log_softmax_at(hf_model, place, **inputs):
    with torch.no_grad():
        logits = hf_model(**{name: torch.tensor([ids]) for name, ids in inputs.items()}).logits
    return torch.log_softmax(logits[0, place].double(), -1)


def causal_steps(model, ids, first=1):
    """Log-probability of every token from one on, given those before it; one pass alone."""
    with torch.no_grad():
        logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0].double()
    steps = torch.log_softmax(logits, -1)
    return [float(steps[place - 1, ids[place]]) for place in range(first, len(ids))]


def masked_step(model, ids, place):
    """Log-probability of a token that is masked, given all others."""
    row = [*ids[:place], model.tokenizer.mask_token_id, *ids[place + 1 :]]
    return float(log_softmax_at(model.hf_model, place, input_ids=row)[ids[place]])


def continuation(model, context, text):
    """Log-probability of what follows a context in a text that begins with it."""
    known, ids = ids_of(model.tokenizer, context), ids_of(model.tokenizer, text)
    assert ids[: len(known)] == known
    places = range(len(known), len(ids))
    match model.kind:
        case "causal":
            values = causal_steps(model, ids, len(known))
        case "masked":
            values = [masked_step(model, ids, p) for p in places]
        case "seq2seq":
            source = ids_of(model.tokenizer, f"{context} <extra_id_0>")
            gap = model.tokenizer.convert_tokens_to_ids("<extra_id_0>")
            begun = [model.hf_model.config.decoder_start_token_id, gap]
            written = [*begun, *ids[len(known) :]]
            values = [
                log_softmax_at(
                    model.hf_model, i - 1, input_ids=source, decoder_input_ids=written[:i]
                )[written[i]]
                for i in range(len(begun), len(written))
            ]
    return float(sum(values))


def continuations(model, triple):
    """Of the three continuations of a triple."""
    return [continuation(model, triple.context, text) for text in triple.texts()]


def log_odds(model, triple):
    stereotype, anti, _ = continuations(model, triple)
    return stereotype - anti
