"""Questions one by one, answered by unbatched passes."""

import torch


def every_question(design):
    """Index and parts of every entry of the answers."""
    for p in range(len(design.first)):
        both = design.subjects[design.first[p]], design.subjects[design.second[p]]
        for t, template in enumerate(design.templates):
            for order, mentioned in enumerate((both, both[::-1])):
                for a, attribute in enumerate(design.attributes):
                    for polarity, denied in enumerate((False, True)):
                        for x in range(2):
                            where = p, t, a, order, polarity, x
                            yield where, template, mentioned, attribute, denied, both[x]


@torch.no_grad()
def continuation(model, given, said):
    """log P(said | given), token by token from unbatched passes."""
    begin = model.tokenizer(given)["input_ids"]
    ids = model.tokenizer(f"{given} {said}")["input_ids"]
    assert ids[: len(begin)] == begin
    logits = model.hf_model(input_ids=torch.tensor([ids])).logits[0].double()
    values = torch.log_softmax(logits, -1)
    return [float(values[i - 1, ids[i]]) for i in range(len(begin), len(ids))]


def answer(model, how, template, mentioned, attribute, denied, subject):
    """Log-probability of one subject as the answer to one question."""
    context = template.context(*mentioned)
    if how == "cloze":
        return sum(continuation(model, context, template.statement(subject, attribute, denied)[0]))
    asked = template.question(attribute, denied)
    given = f"Paragraph: {context} Question: {asked} Answer:"
    return sum(continuation(model, given, template.answer(subject)[0] + "."))
