"""Answers that are typed: parse() of the openai package, and pydantic-ai with a strict schema."""

import enum
import os

import openai
import pydantic
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

client = openai.OpenAI(base_url=os.environ["MOEFLUX_TEST_URL"],
                       api_key=os.environ["MOEFLUX_TEST_KEY"],
                       max_retries=0)
MODEL = "fable-20m"
QUESTION = "Who lives in the wood?"


class Size(enum.StrEnum):
    SMALL = "small"
    LARGE = "large"


class Animal(pydantic.BaseModel):
    kind: Size
    legs: int = pydantic.Field(ge=0, le=8)
    is_brave: bool


class Wood(pydantic.BaseModel):
    """Nested, so that references are in the schema."""

    animals: list[Animal] = pydantic.Field(min_length=1, max_length=3)
    first: Animal | None


def check(wood):
    assert isinstance(wood, Wood) and 1 <= len(wood.animals) <= 3, wood
    assert all(0 <= animal.legs <= 8 for animal in wood.animals)
    return wood


ASK = {"model": MODEL, "temperature": 1.5, "seed": 7}
messages = [{"role": "user", "content": QUESTION}]
chat = client.chat.completions.parse(**ASK, messages=messages, response_format=Wood)
wood = check(chat.choices[0].message.parsed)
with client.chat.completions.stream(**ASK, messages=messages, response_format=Wood) as events:
    for _ in events:
        pass
    assert check(events.get_final_completion().choices[0].message.parsed) == wood

responses = {"model": MODEL, "temperature": 1.5, "input": QUESTION, "text_format": Wood}
check(client.responses.parse(**responses).output_parsed)
with client.responses.stream(**responses) as events:
    for _ in events:
        pass
    check(events.get_final_response().output_parsed)

provider = OpenAIProvider(base_url=os.environ["MOEFLUX_TEST_URL"],
                          api_key=os.environ["MOEFLUX_TEST_KEY"])
for model in (OpenAIChatModel, OpenAIResponsesModel):
    agent = Agent(model(MODEL, provider=provider), retries=0,
                  output_type=NativeOutput(Wood, strict=True))
    check(agent.run_sync(QUESTION, model_settings={"temperature": 1.5}).output)
print("typed:", wood)
