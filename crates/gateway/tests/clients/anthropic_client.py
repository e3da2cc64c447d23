"""The Anthropic SDK against a gateway that serves it and against one whose budget is spent."""

import sys

import anthropic

QUESTION = {"model": "claude-test", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}


def served(url: str, token: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=token)
    message = client.messages.create(**QUESTION)
    assert message.content[0].text == "hi", message
    assert message.usage.output_tokens == 4, message
    with client.messages.stream(**QUESTION) as stream:
        assert stream.get_final_text() == "hi"
    assert "claude-test" in [model.id for model in client.models.list()]
    assert client.models.retrieve("claude-test").id == "claude-test"
    try:
        client.models.retrieve("claude-nobody-knows")
    except anthropic.NotFoundError as error:
        assert "claude-nobody-knows" in error.body["error"]["message"], error.body
    else:
        raise AssertionError("a model nobody knows was found")


def refused(url: str, token: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=token)
    try:
        client.messages.create(**QUESTION)
    except anthropic.APIStatusError as error:
        assert error.status_code == 402, error
        assert error.body["error"]["type"] == "billing_error", error.body
        assert "budget_usd" in error.body["error"]["message"], error.body
    else:
        raise AssertionError("a call past the budget was served")


served(*sys.argv[1:3])
refused(*sys.argv[3:5])
