"""Calls two gateways with the Anthropic SDK: one that works and one whose budget is spent."""

import sys

import anthropic

REQUEST = {"model": "claude-test", "max_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}


def check_served(url: str, token: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=token)
    message = client.messages.create(**REQUEST)
    assert message.content[0].text == "hi", message
    assert message.usage.output_tokens == 4, message
    with client.messages.stream(**REQUEST) as stream:
        assert stream.get_final_text() == "hi"
    assert "claude-test" in [model.id for model in client.models.list()]
    assert client.models.retrieve("claude-test").id == "claude-test"
    try:
        client.models.retrieve("claude-unknown")
    except anthropic.NotFoundError as error:
        assert "claude-unknown" in error.body["error"]["message"], error.body
    else:
        raise AssertionError("an unknown model was found")


def check_rejected(url: str, token: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key=token)
    try:
        client.messages.create(**REQUEST)
    except anthropic.APIStatusError as error:
        assert error.status_code == 402, error
        assert error.body["error"]["type"] == "billing_error", error.body
        assert "budget_usd" in error.body["error"]["message"], error.body
    else:
        raise AssertionError("a call over the budget was served")


check_served(*sys.argv[1:3])
check_rejected(*sys.argv[3:5])
