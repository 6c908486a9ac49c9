"""The playground's form: what it becomes, and that its curl and Python ask for the same."""

import ast
import json
import shlex
from dataclasses import replace

import pytest

from frontend.playground.request_form import as_curl, as_python, empty_form, read_form
from inference.openai.errors import ApiError

SERVER = "https://swarm.example/"


def test_empty_fields_are_left_out() -> None:
    form = read_form({"prompt": "In", "temperature": "", "seed": " ", "top_p": "0.5", "max_tokens": "4"})

    body = form.body("demo")

    assert body["model"] == "demo"
    assert body["max_tokens"] == 4
    assert body["top_p"] == 0.5
    assert not {"temperature", "seed", "stop"} & body.keys()


def test_the_curl_command_carries_the_body_whatever_the_text_holds() -> None:
    form = replace(empty_form(), prompt='it\'s "quoted" $HOME `ls`\nnext 白鲸')

    words = shlex.split(as_curl(form, "demo", SERVER).replace("\\\n", " "))

    assert words[2] == "https://swarm.example/v1/completions"
    assert json.loads(words[words.index("-d") + 1]) == {**form.body("demo"), "stream": True}


@pytest.mark.parametrize("mode", ["chat", "completion"])
def test_the_python_program_asks_for_the_same(mode: str) -> None:
    form = replace(empty_form(mode), prompt='say "hi"\n', system="Be kind")

    program = ast.parse(as_python(form, "demo", SERVER))

    calls = [node for node in ast.walk(program) if isinstance(node, ast.Call)]
    create = next(call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "create")
    given = {word.arg: ast.literal_eval(word.value) for word in create.keywords if word.arg}
    extra = given.pop("extra_body")
    assert given.pop("stream") is True
    assert {**given, **extra} == form.body("demo")


def test_a_number_that_is_none_is_named() -> None:
    with pytest.raises(ApiError, match="'top_k'"):
        read_form({"prompt": "In", "top_k": "4.5"}).body("demo")
