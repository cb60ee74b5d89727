// The @anthropic-ai/sdk package of npm: a message, a stream and an error.
import assert from "node:assert";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: process.env.MOEFLUX_TEST_URL.replace(/\/v1$/, ""),
  apiKey: process.env.MOEFLUX_TEST_KEY,
  maxRetries: 0,
});
const ask = {
  model: "fable-20m",
  max_tokens: 16,
  seed: 3,
  messages: [{ role: "user", content: "Once upon a time" }],
};
const whole = await client.messages.create(ask);
const text = whole.content[0].text;
assert.ok(text);
assert.equal(whole.stop_reason, "max_tokens");
const final = await client.messages.stream(ask).finalMessage();
assert.equal(final.content[0].text, text);
assert.equal(final.usage.output_tokens, 16);
await assert.rejects(client.messages.create({ ...ask, model: "none" }), (error) => {
  assert.ok(error instanceof Anthropic.NotFoundError);
  return true;
});
console.log("anthropic of npm:", text);
