// The ollama package of npm, and the provider by which the Vercel AI SDK and Cline ask Ollama.
import assert from 'node:assert/strict';
import { generateText, streamText, tool, jsonSchema } from 'ai';
import { Ollama } from 'ollama';
import { createOllama } from 'ollama-ai-provider-v2';

const host = process.env.MOEFLUX_TEST_PARROT;
const client = new Ollama({ host });
const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const tools = ['look', 'rain'].map((name) => (
  { type: 'function', function: { name, description: 'd', parameters: schema } }));
const asked = [{ role: 'user', content: 'both' }];

assert.deepEqual((await client.list()).models.map((model) => model.model), ['parrot:latest']);
const shown = await client.show({ model: 'parrot' });
assert.ok(shown.capabilities.includes('tools') && shown.details.parameter_size);
const pieces = [];
for await (const piece of await client.chat({ model: 'parrot', messages: asked, tools, stream: true })) {
  pieces.push(...(piece.message.tool_calls ?? []));
}
assert.deepEqual(pieces.map((call) => call.function.arguments.city), ['Paris', 'Oslo']);
const city = await client.chat(
  { model: 'parrot', messages: [{ role: 'user', content: 'city' }], format: schema });
assert.deepEqual(JSON.parse(city.message.content), { city: 'Oslo' });

const model = createOllama({ baseURL: `${host}/api` })('parrot');
assert.equal((await generateText({ model, prompt: 'hello' })).text, 'Hello there');
let text = '';
for await (const piece of streamText({ model, prompt: 'hello' }).textStream) text += piece;
assert.equal(text, 'Hello there');
const sdkTools = Object.fromEntries(['look', 'rain'].map((name) => (
  [name, tool({ description: 'd', inputSchema: jsonSchema(schema) })])));
const calls = await generateText({ model, prompt: 'both', tools: sdkTools });
assert.deepEqual(calls.toolCalls.map((call) => call.input.city), ['Paris', 'Oslo']);
assert.equal(new Set(calls.toolCalls.map((call) => call.toolCallId)).size, 2);
const results = calls.toolCalls.map((call) => ({
  type: 'tool-result', toolCallId: call.toolCallId, toolName: call.toolName,
  output: { type: 'text', value: call.input.city === 'Paris' ? 'Paris is sunny' : 'It rains' } }));
const matched = await generateText({ model, tools: sdkTools, messages: [
  { role: 'user', content: 'both' }, ...calls.response.messages,
  { role: 'tool', content: results.reverse() }] });
assert.equal(matched.text, 'matched');
console.log('ollama (npm):', text);
