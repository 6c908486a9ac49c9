"""inference/openai/chat_template.py: the model's own template, in a sandbox, with errors that say whose fault it is."""

import pytest

from inference.openai.chat_template import render
from inference.openai.errors import ApiError
from inference.openai.parameters import Message

CONVERSATION = [Message("system", "Be brief."), Message("user", "Hi <&>")]
CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)


def test_a_template_writes_the_conversation_up_to_the_answer() -> None:
    text = render(CHATML, CONVERSATION)

    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <&><|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_finds_the_names_that_transformers_gives_it() -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m | tojson }}"
        "{% endfor %}{{ strftime_now('%Y') | length }}{% if tools is not none %}tools{% endif %}{{ eos_token }}"
    )

    assert render(template, CONVERSATION, bos_token="<s>", eos_token="</s>") == (
        '<s>{"role": "system", "content": "Be brief."}4</s>'
    )


def test_a_model_without_template_gets_a_plain_dialogue() -> None:
    assert render(None, CONVERSATION) == "System: Be brief.\nUser: Hi <&>\nAssistant:"


def test_a_conversation_that_the_template_refuses_is_the_callers_fault() -> None:
    with pytest.raises(ApiError) as caught:
        render("{{ raise_exception('roles must alternate') }}", CONVERSATION)

    assert (caught.value.status, caught.value.param) == (400, "messages")
    assert "roles must alternate" in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{% for %}",
        "{{ messages.nothing.here }}",
        "{{ 1 / 0 }}",
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{% include 'secrets' %}",
    ],
)
def test_a_broken_or_hostile_template_is_the_servers_fault_and_does_nothing(template: str) -> None:
    with pytest.raises(ApiError) as caught:
        render(template, CONVERSATION)

    assert (caught.value.status, caught.value.code) == (500, "chat_template_failed")


def test_a_conversation_is_bounded() -> None:
    with pytest.raises(ApiError, match="at most"):
        render(None, [Message("user", "x" * (5 << 20))])
