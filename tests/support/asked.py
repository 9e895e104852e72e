"""Questions one by one, answered by unbatched passes."""

from tests.support.literal import continuation


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


def answer(model, how, template, mentioned, attribute, denied, subject):
    """Log-probability of one subject as the answer to one question."""
    context = template.context(*mentioned)
    if how == "cloze":
        return continuation(
            model, context, f"{context} {template.statement(subject, attribute, denied)[0]}"
        )
    asked = template.question(attribute, denied)
    given = f"Paragraph: {context} Question: {asked} Answer:"
    return continuation(model, given, f"{given} {template.answer(subject)[0]}.")
