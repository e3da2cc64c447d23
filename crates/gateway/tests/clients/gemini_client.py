"""The Google GenAI SDK against a gateway that serves it and against one whose budget is spent."""

import sys

from google import genai
from google.genai import errors, types

CONFIG = types.GenerateContentConfig(max_output_tokens=100)
QUESTION = {"model": "gemini-test", "contents": "hello", "config": CONFIG}


def client_of(url: str, token: str) -> genai.Client:
    # This SDK tries again only when it is told to.
    retry = types.HttpRetryOptions(attempts=3, initial_delay=0.01)
    return genai.Client(api_key=token, http_options=types.HttpOptions(base_url=url, retry_options=retry))


def served(url: str, token: str) -> None:
    client = client_of(url, token)
    assert client.models.generate_content(**QUESTION).text == "hi"
    pieces = client.models.generate_content_stream(**QUESTION)
    assert "".join(piece.text or "" for piece in pieces) == "hi"
    assert "models/gemini-test" in [model.name for model in client.models.list()]
    assert client.models.get(model="gemini-test").name == "models/gemini-test"


def refused(url: str, token: str) -> None:
    client = client_of(url, token)
    try:
        client.models.generate_content(**QUESTION)
    except errors.ClientError as error:
        assert error.code == 402, error
        assert "budget_usd" in error.message, error.message
    else:
        raise AssertionError("a call past the budget was served")


served(*sys.argv[1:3])
refused(*sys.argv[3:5])
