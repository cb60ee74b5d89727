"""langchain-openai: an answer, a stream and a tool that may be called."""

import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="fable-20m", base_url=os.environ["MOEFLUX_TEST_URL"],
                   api_key=os.environ["MOEFLUX_TEST_KEY"], max_tokens=16, seed=3)
text = model.invoke("Once upon a time").content
assert text
assert "".join(piece.content for piece in model.stream("Once upon a time")) == text


@tool
def look(place: str) -> str:
    """Looks at a place."""
    return place


assert model.bind_tools([look]).invoke("Once upon a time") is not None
print("langchain:", text)
