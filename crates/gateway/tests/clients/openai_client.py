"""Calls two gateways with the OpenAI SDK: one that works and one whose budget is spent."""

import sys

import openai

CHAT = {"model": "gpt-test", "max_completion_tokens": 100, "messages": [{"role": "user", "content": "hello"}]}
RESPONSE = {"model": "gpt-test", "max_output_tokens": 100, "input": "hello"}


def check_served(url: str, token: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=token)
    completion = client.chat.completions.create(**CHAT)
    assert completion.choices[0].message.content == "hi", completion
    chunks = list(client.chat.completions.create(stream=True, **CHAT))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hi", chunks
    # Only the gateway requested usage, so the client must not see it.
    assert all(chunk.usage is None for chunk in chunks), chunks
    assert client.responses.create(**RESPONSE).output_text == "hi"
    assert "gpt-test" in [model.id for model in client.models.list()]
    assert client.models.retrieve("gpt-test").id == "gpt-test"


def check_rejected(url: str, token: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=token)
    for call, request in [(client.chat.completions.create, CHAT), (client.responses.create, RESPONSE)]:
        try:
            call(**request)
        except openai.APIStatusError as error:
            assert error.status_code == 402, error
            assert error.code == "budget_exceeded", error.body
            assert "budget_usd" in error.message, error.message
        else:
            raise AssertionError("a call over the budget was served")


check_served(*sys.argv[1:3])
check_rejected(*sys.argv[3:5])
