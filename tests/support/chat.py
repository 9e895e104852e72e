"""Chat templates of the usual kinds, and models that have them."""

import copy
from dataclasses import replace

# A system prompt of its own; the answer follows at once.
PLAIN = (
    "{% if messages[0]['role'] != 'system' %}{{ '<s>system\nHelp.</s>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<s>' + m['role'] + '\n' + m['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
# No system prompt; a space before the answer.
STRICT = (
    "{% for m in messages %}{% if m['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}"
    "{% elif m['role'] == 'user' %}{{ '[ask] ' + m['content'] + ' [/ask]' }}"
    "{% else %}{{ ' ' + m['content'] + '</s>' }}{% endif %}{% endfor %}"
)
THINKING = (
    PLAIN.replace("'<s>assistant\n'", "'<s>assistant\n' + ("
    "'' if enable_thinking else '<think></think>\n')")
)  # fmt: skip


def with_template(model, template):
    """The same model with a tokenizer that has a chat template."""
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = template
    return replace(model, tokenizer=tokenizer)
