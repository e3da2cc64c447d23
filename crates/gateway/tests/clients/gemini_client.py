"""Calls two gateways with the Google GenAI SDK: one that works and one whose budget is spent."""

import sys

from google import genai
from google.genai import errors, types

CONFIG = types.GenerateContentConfig(max_output_tokens=100)
REQUEST = {"model": "gemini-test", "contents": "hello", "config": CONFIG}


def make_client(url: str, token: str) -> genai.Client:
    # This SDK retries only if configured to.
    retry = types.HttpRetryOptions(attempts=3, initial_delay=0.01)
    return genai.Client(api_key=token, http_options=types.HttpOptions(base_url=url, retry_options=retry))


def check_served(url: str, token: str) -> None:
    client = make_client(url, token)
    assert client.models.generate_content(**REQUEST).text == "hi"
    pieces = client.models.generate_content_stream(**REQUEST)
    assert "".join(piece.text or "" for piece in pieces) == "hi"
    assert "models/gemini-test" in [model.name for model in client.models.list()]
    assert client.models.get(model="gemini-test").name == "models/gemini-test"


def check_rejected(url: str, token: str) -> None:
    client = make_client(url, token)
    try:
        client.models.generate_content(**REQUEST)
    except errors.ClientError as error:
        assert error.code == 402, error
        assert "budget_usd" in error.message, error.message
    else:
        raise AssertionError("a call over the budget was served")


check_served(*sys.argv[1:3])
check_rejected(*sys.argv[3:5])
