// The openai package of npm: an answer, a stream and an error.
import assert from "node:assert";
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.MOEFLUX_TEST_URL,
  apiKey: process.env.MOEFLUX_TEST_KEY,
  maxRetries: 0,
});
const ask = {
  model: "fable-20m",
  messages: [{ role: "user", content: "Once upon a time" }],
  max_completion_tokens: 16,
  seed: 3,
};
const whole = await client.chat.completions.create(ask);
const text = whole.choices[0].message.content;
assert.ok(text);
let streamed = "";
for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(streamed, text);
await assert.rejects(client.chat.completions.create({ ...ask, model: "none" }), (error) => {
  return error instanceof OpenAI.NotFoundError;
});
console.log("openai of npm:", text);
