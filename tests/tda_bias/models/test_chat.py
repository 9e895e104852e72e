"""Chat templates: what stands around a message, as the tokenizer itself writes it."""

import pytest

from tda_bias.models.chat import chat_of, rendered
from tda_bias.models.language_model import LanguageModel
from tda_bias.types import InputError
from tests.support.chat import PLAIN, STRICT, THINKING, with_template
from tests.support.models import tiny_hf_model

USER = [{"role": "user", "content": "Who fell?"}]


def test_a_model_without_a_template_and_a_template_that_refuses_are_one_line(tiny_lm, subwords):
    with pytest.raises(InputError, match="tiny-gpt2: its tokenizer has no chat template; ask it"):
        chat_of(tiny_lm("gpt2"))
    strict = with_template(tiny_lm("gpt2"), STRICT)
    with pytest.raises(InputError, match=r"refuses messages of system, user \(System role not"):
        chat_of(strict, system="Be brief.")
    silent = with_template(strict, "{{ messages[-1]['content'] }}")
    with pytest.raises(InputError, match="leaves the system prompt out; leave it out, too"):
        chat_of(silent, system="Be brief.")
    with pytest.raises(InputError, match="leaves the message out"):
        chat_of(with_template(strict, "Hello."))


@pytest.mark.parametrize("template", [PLAIN, STRICT, THINKING])
def test_a_prompt_is_what_the_tokenizer_writes_of_the_message(tiny_lm, template):
    model = with_template(tiny_lm("gpt2"), template)
    whole = model.tokenizer.apply_chat_template(
        USER, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert chat_of(model).prompt("Who fell?") == whole == rendered(model, USER)


def test_a_system_prompt_takes_the_place_of_the_template_s_own(tiny_lm):
    model = with_template(tiny_lm("gpt2"), PLAIN)
    assert "Help." in chat_of(model).before
    own = chat_of(model, system="Be brief.")
    assert "Be brief." in own.before
    assert "Help." not in own.before
    assert own.record.before == own.before


def test_thinking_is_switched_where_the_template_knows_of_it(tiny_lm):
    model = with_template(tiny_lm("gpt2"), THINKING)
    off, on = (chat_of(model, thinking=thinking) for thinking in ("off", "on"))
    assert (off.thinking, on.thinking) == ("off", "on")
    assert off.after.endswith("<think></think>\n")
    assert not on.after.endswith("</think>\n")
    assert chat_of(with_template(model, PLAIN)).thinking is None


def test_the_space_before_an_answer_is_the_template_s(tiny_lm):
    assert chat_of(with_template(tiny_lm("gpt2"), PLAIN)).between == ""
    assert chat_of(with_template(tiny_lm("gpt2"), STRICT)).between == " "


def test_special_tokens_that_the_tokenizer_adds_stand_once(tokenizer):
    """A tokenizer that begins every text with a token, and a template that writes it, too."""
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, unk_token="<unk>", bos_token="<bos>"
    )
    begin = made.bos_token_id
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", begin)]
    )
    made.chat_template = "{{ bos_token }}{{ messages[0]['content'] }} She"
    model = LanguageModel(tiny_hf_model("gpt2", len(made)), made, "tiny")
    text = rendered(model, [{"role": "user", "content": "My sister"}])
    assert text == "My sister She"
    assert made(text)["input_ids"].count(begin) == 1


def test_a_template_that_prints_the_date_prints_the_same_on_every_day(tiny_lm):
    today = "{{ 'Today: ' + strftime_now('%d %b %Y') + '\n' }}"
    chat = chat_of(with_template(tiny_lm(), today + PLAIN))
    assert chat.before.startswith("Today: 26 Jul 2024\n")
    assert chat.record.before == chat.before


def test_thinking_is_known_by_either_of_its_names(tiny_lm):
    model = with_template(tiny_lm(), THINKING.replace("enable_thinking", "thinking"))
    off, on = (chat_of(model, thinking=thinking) for thinking in ("off", "on"))
    assert (off.thinking, on.thinking) == ("off", "on")
    assert off.after != on.after
