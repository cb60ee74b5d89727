import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { ExpertMap, History } = await load("map.ts");
const { snippets } = await load("snippets.ts");

const bits = (...on) => {
  const bytes = Buffer.alloc(2);
  for (const e of on) bytes[e >> 3] |= 1 << (e & 7);
  return bytes.toString("base64");
};
const whole = { model: "m", experts: 10, whole: true, layers: [{ layer: 3, gpu: bits(0, 9), memory: bits(0, 1) }, { layer: 7 }] };

test("an expert in both places is the GPU's, and one in none is on the drive", () => {
  const map = new ExpertMap();
  map.take({ residency: whole }, 0);
  assert.deepEqual([...map.rows[0].tiers], [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]);
  assert.deepEqual(map.counts(map.rows[1], 0), { drive: 10, memory: 0, gpu: 0, used: 0 });
});

test("changes and uses of layers that are not there are passed over", () => {
  const map = new ExpertMap();
  map.take({ residency: whole }, 0);
  map.take({ residency: { ...whole, whole: false, changed: [[3, 2, 1], [5, 1, 1], [3, 99, 1]] }, used: [[3, bits(2)], [5, bits(1)]] }, 100);
  assert.equal(map.rows[0].tiers[2], 1);
  assert.deepEqual(map.counts(map.rows[0], 50), { drive: 6, memory: 2, gpu: 2, used: 1 });
});

test("frames that promise too much take no memory", () => {
  const map = new ExpertMap();
  map.take({ residency: { model: "m", experts: 1e9, whole: true, layers: [{ layer: 0 }] } }, 0);
  assert.equal(map.experts, 4096);
});

test("seconds are gathered from frames, and ten minutes kept", () => {
  const history = new History();
  for (let i = 0; i <= 4 * 700; ++i) {
    history.take({ t: 250 * i, hit: 0.5, read_bytes: 0, bytes: { drive: 1e9, bus: 0 }, stall_s: 0.01, step_tokens: 5 * i });
  }
  const { samples } = history;
  assert.equal(samples.length, 601);
  assert.deepEqual({ ...samples.at(-1), at: 0 }, { at: 0, hit: 0.5, gbPerSecond: 4, stallMsPerToken: 2, tokensPerSecond: 20 });
});

test("a second in which nothing was computed has no hit rate", () => {
  const history = new History();
  for (let i = 0; i <= 4; ++i) history.take({ t: 250 * i, hit: 0.5, read_bytes: 0, step_tokens: 9 });
  assert.equal(history.samples[0].hit, null);
});

test("names of models are quoted in commands", () => {
  const all = snippets("http://127.0.0.1:8080", "it's", true);
  assert.deepEqual(all.map((s) => s.name), ["curl", "OpenAI's Python package", "Claude Code", "Codex", "Ollama", "Open WebUI"]);
  assert.ok(all[0].text.includes("it'\\''s"));
  assert.ok(!all.some((s) => s.text.includes("none")));
});
