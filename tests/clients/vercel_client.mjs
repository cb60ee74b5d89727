// Vercel's ai package over OpenAI's responses and chat completions, and Anthropic's messages: a text
// and a stream of it.
import assert from "node:assert";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const settings = { baseURL: process.env.MOEFLUX_TEST_URL, apiKey: process.env.MOEFLUX_TEST_KEY };
const openai = createOpenAI(settings);
const models = {
  responses: openai.responses("fable-20m"),
  chat: openai.chat("fable-20m"),
  messages: createAnthropic(settings)("fable-20m"),
};
for (const [name, model] of Object.entries(models)) {
  const ask = { model, prompt: "Once upon a time", maxOutputTokens: 16, temperature: 0 };
  const { text, finishReason } = await generateText({ ...ask, maxRetries: 0 });
  assert.ok(text, name);
  assert.equal(finishReason, "length", name);
  let streamed = "";
  for await (const piece of streamText({ ...ask, maxRetries: 0 }).textStream) streamed += piece;
  assert.equal(streamed, text, name);
  console.log(`ai over ${name}:`, text);
}
