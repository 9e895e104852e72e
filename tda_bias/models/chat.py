"""Chat templates: messages as the text that a chat model was trained to go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tda_bias.config import ChatOption
from tda_bias.models.language_model import LanguageModel, special_tokens_around
from tda_bias.store.record import ChatRecord, Thinking
from tda_bias.types import InputError

# Names by which templates know whether a model is to think first: Qwen3's, and Granite's.
_THINKS = ("enable_thinking", "thinking")
# What templates that print today's date are told, so that a number is the same on every day.
_DATE = datetime(2024, 7, 26)
# Stand for a message and for an answer where a template is looked at.
_MESSAGE, _ANSWER = "Where is the message?", "Here is the answer."


@dataclass(frozen=True)
class Chat:
    """A conversation of one message, with what a tokenizer's template puts around it.

    Attributes:
        before: What stands before the message, the system prompt among it; not the special tokens
            that the tokenizer puts before every text.
        after: What stands after it, up to where the model's turn begins.
        between: What stands between that and the model's answer.
        thinking: Whether the model is asked to think first; None where the template does not know
            of it.

    Examples:
        >>> Chat("<user>", "</user><model>", "").prompt("Who fell?")
        '<user>Who fell?</user><model>'
    """

    before: str
    after: str
    between: str
    thinking: Thinking | None = None

    def prompt(self, message: str) -> str:
        """The text that the model's answer to a message follows."""
        return f"{self.before}{message}{self.after}"

    @property
    def record(self) -> ChatRecord:
        """The same for the record of a run."""
        return ChatRecord(**asdict(self))


def has_template(model: LanguageModel) -> bool:
    """Tell whether a model's tokenizer comes with a chat template."""
    return bool(getattr(model.tokenizer, "chat_template", None))


def _on_one_day() -> str:
    """The beginning of a template in which ``strftime_now`` writes the same date on every day.

    It is written in the template's language: transformers hands templates no functions.
    """
    written = "".join(
        f"|replace('%{letter}', '{_DATE.strftime(f'%{letter}')}')" for letter in "aAbBdmyYHIpMSjxX"
    )
    return f"{{%- macro strftime_now(form) -%}}{{{{- form{written} -}}}}{{%- endmacro -%}}"


def rendered(
    model: LanguageModel,
    messages: Sequence[Mapping[str, str]],
    *,
    thinking: Thinking = "off",
    goes_on: bool = True,
) -> str:
    """Messages as the template of a model's tokenizer writes them.

    Special tokens that the tokenizer puts before every text are left out: they would stand twice.
    A template that prints today's date prints 26 July 2024 on any day.

    Args:
        model: A model whose tokenizer has a chat template.
        messages: Of a conversation, each with ``role`` (system, user, assistant) and ``content``.
        thinking: Whether the model is asked to think first, where the template knows of it.
        goes_on: Whether the text ends where the model's next turn begins.

    Raises:
        InputError: if there is no template, or it refuses the messages.
    """
    from jinja2 import TemplateError

    if not has_template(model):
        raise InputError(
            f"`model` {model.name}: its tokenizer has no chat template; ask it in plain text, or "
            "give an instruction-tuned model"
        )
    try:
        text = model.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            chat_template=_on_one_day() + model.tokenizer.get_chat_template(),
            tokenize=False,
            add_generation_prompt=goes_on,
            **{name: thinking == "on" for name in _THINKS},
        )
    except (TemplateError, ValueError) as error:
        reason = " ".join(str(error).split())
        roles = ", ".join(message["role"] for message in messages)
        raise InputError(
            f"`model` {model.name}: its chat template refuses messages of {roles} ({reason}); "
            "leave the system prompt out, or ask it in plain text"
        ) from None
    leading, _ = special_tokens_around(model.tokenizer)
    for token in model.tokenizer.convert_ids_to_tokens(leading):
        text = str(text).removeprefix(token)
    return str(text)


def chat_of(model: LanguageModel, *, system: str | None = None, thinking: Thinking = "off") -> Chat:
    """A conversation that begins with one message, in the form of a model's template.

    Args:
        model: A model whose tokenizer has a chat template.
        system: The system prompt; what the template itself puts there if None.
        thinking: Whether the model is asked to think first, where the template knows of it.

    Raises:
        InputError: if there is no template, or it does not write the messages it is given.
    """
    first: list[dict[str, Any]] = [{"role": "user", "content": _MESSAGE}]
    if system is not None:
        first.insert(0, {"role": "system", "content": system})
    text = rendered(model, first, thinking=thinking)
    before, message, after = text.rpartition(_MESSAGE)
    if not message or (system is not None and system.strip() not in before + after):
        left_out = "system prompt" if message else "message"
        raise InputError(
            f"`model` {model.name}: its chat template leaves the {left_out} out; "
            + ("leave it out, too" if message else "ask it in plain text")
        )
    other: Thinking = "on" if thinking == "off" else "off"
    knows = rendered(model, first, thinking=other) != text
    between = _between(model, first, text, thinking)
    return Chat(before, after, between, thinking if knows else None)


def chat_for(
    model: LanguageModel, config: ChatOption, *, thinking: Thinking = "off"
) -> Chat | None:
    """The template that a model is asked through; None where it is asked in plain text.

    Args:
        model: A model.
        config: Whether by a template, and the system prompt.
        thinking: Whether the model thinks before it answers, where the template knows of it.

    Raises:
        InputError: if a template, a system prompt or thinking is asked for and has no place.
    """
    may = model.kind == "causal" and config.chat != "text"
    if may and (config.chat == "template" or has_template(model)):
        chat = chat_of(model, system=config.system, thinking=thinking)
        if thinking == "on" and chat.thinking is None:
            raise InputError(
                f"`thinking`: the chat template of {model.name} has no switch for it; leave it out"
            )
        return chat
    asked_for = {
        "chat": config.chat == "template",
        "system": config.system is not None,
        "thinking": thinking == "on",
    }
    for name in (name for name, is_asked in asked_for.items() if is_asked):
        why = "its tokenizer has no chat template"
        if config.chat == "text":
            why = "`chat` is text"
        elif model.kind != "causal":
            why = f"it is {model.kind}"
        raise InputError(
            f"`{name}` goes with chat models, and `model` {model.name} is asked in plain text "
            f"({why}); leave it out"
        )
    return None


def _between(
    model: LanguageModel, messages: Sequence[Mapping[str, str]], text: str, thinking: Thinking
) -> str:
    """The space that a template puts before an answer; nothing where it writes turns otherwise."""
    answered = [*messages, {"role": "assistant", "content": _ANSWER}]
    whole = rendered(model, answered, thinking=thinking, goes_on=False)
    space, answer, _ = whole.removeprefix(text).partition(_ANSWER)
    return space if whole.startswith(text) and answer and not space.strip() else ""
