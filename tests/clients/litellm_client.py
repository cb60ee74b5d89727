"""litellm: whole answers and streams."""

import os

import litellm

ASK = {"model": "openai/fable-20m", "api_base": os.environ["MOEFLUX_URL"],
       "api_key": os.environ["MOEFLUX_KEY"], "max_tokens": 16, "seed": 3,
       "messages": [{"role": "user", "content": "Once upon a time"}]}

whole = litellm.completion(**ASK)
text = whole.choices[0].message.content
assert text and whole.usage.completion_tokens == 16
pieces = litellm.completion(**ASK, stream=True)
assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text
print("litellm:", text)
