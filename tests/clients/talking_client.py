"""Published clients and a model that talks: typed answers, and agents whose tool is called with the
right city, run, and whose result is read.
"""

import json
import os
import sys

import anthropic
import ollama
import openai
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import talking_test as talk  # noqa: E402

URL = os.environ["MOEFLUX_TEST_TALKER"]
MODEL, KEY = "any", "none"
SHARED = {"model": MODEL, "temperature": 0}
RESULT = "18 degrees"
CITIES = ("Paris", "London", "Berlin")  # it spells others its own way where a form asks for them


class Weather(BaseModel):
    """The weather"""

    city: str
    unit: str


def openai_loop(city):
    """One turn of an agent: a call, its result, the answer."""
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
    messages = talk.weather(city)
    asked = {**SHARED, "tools": [talk.openai_tool()], "max_tokens": 200}
    message = client.chat.completions.create(
        **asked, messages=messages, tool_choice="required",
        parallel_tool_calls=False).choices[0].message
    call = message.tool_calls[0]
    talk.check_call("openai", call.function.name, json.loads(call.function.arguments), city)
    messages += [message.model_dump(exclude_none=True),
                 {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    said = client.chat.completions.create(**asked, messages=messages, tool_choice="none")
    assert RESULT[:2] in said.choices[0].message.content, said


def anthropic_call(city):
    client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
    answer = client.messages.create(
        model=MODEL, extra_body={"temperature": 0}, max_tokens=200, messages=talk.weather(city),
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        tools=[{"name": "get_weather", "description": "The weather",
                "input_schema": talk.PARAMETERS}])
    call = next(block for block in answer.content if block.type == "tool_use")
    talk.check_call("anthropic", call.name, call.input, city)


def ollama_forms():
    client = ollama.Client(host=URL)
    for form in talk.FORMS:
        answer = client.chat(model=MODEL, messages=talk.question(form[0]), format=form[1],
                             options={"temperature": 0})
        talk.check_form("ollama", answer.message.content, form)


def typed_agent(city):
    """pydantic-ai asks for a call of the tool that its type becomes."""
    provider = OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY)
    agent = Agent(OpenAIChatModel(MODEL, provider=provider), output_type=Weather, retries=0)
    asked = talk.weather(city)[0]["content"]
    found = agent.run_sync(asked, model_settings={"temperature": 0}).output
    assert found.city == city, found


for place in CITIES:
    openai_loop(place)
    anthropic_call(place)
    typed_agent(place)
ollama_forms()
print("talking:", ", ".join(CITIES))
