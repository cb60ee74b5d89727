// What a scripted server says of its experts and its model: 24 layers of 64 experts, on three tiers.
import { sleep } from "./fake.mjs";

const kLayers = 24;
const kExperts = 64;

const bits = (has) => {
  const bytes = Buffer.alloc(kExperts / 8);
  for (let e = 0; e < kExperts; ++e) if (has(e)) bytes[e >> 3] |= 1 << (e & 7);
  return bytes.toString("base64");
};

export function firstFrame() {
  return { t: 1_000_000, tok_s: 0, prompt_tok_s: 0, hit: 0.5, read_bytes: 0, stall_us: 0, stall_s: 0, step_tokens: 0,
    bytes: { drive: 0, bus: 0 }, tiers: { model: "fake-model", gpu: 192, memory: 768, drive: 576 },
    residency: { model: "fake-model", experts: kExperts, whole: true,
      layers: Array.from({ length: kLayers }, (_, layer) => ({
        layer, gpu: bits((e) => e % 8 === layer % 8), memory: bits((e) => e % 8 !== layer % 8 && (e * 7 + layer) % 7 < 4) })) } };
}

export function frameAt(i) {
  return { t: 1_000_000 + 250 * i, tok_s: 12, prompt_tok_s: 0, hit: 0.75 + 0.2 * Math.sin(i / 7), read_bytes: i * 5e7, stall_us: i * 20000,
    stall_s: 0.02 + 0.01 * Math.sin(i / 5), step_tokens: 3 * i, bytes: { drive: 5e7 + 3e7 * Math.sin(i / 9), bus: 1e7 },
    tiers: { model: "fake-model", gpu: 192, memory: 768, drive: 576 },
    residency: { model: "fake-model", experts: kExperts, whole: false, changed: [[23, i % kExperts, 1]] },
    used: Array.from({ length: kLayers }, (_, layer) => [layer, bits((e) => (e * 13 + layer * 5 + Math.floor(i / 100)) % 17 === 0)]) };
}

async function telemetry(request, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.write(`data: ${JSON.stringify(firstFrame())}\n\n`);
  for (let i = 1; i < 400 && !response.destroyed; ++i) {
    response.write(`data: ${JSON.stringify(frameAt(i))}\n\n`);
    await sleep(i < 200 ? 2 : 100);
  }
}

async function log(request, response) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const lines = ["1 model answers at http://127.0.0.1:8080/v1", "<b>not bold</b>", "POST /v1/chat/completions 200, 40 + 12 tokens, 1.2 s"];
  lines.forEach((line, n) => response.write(`data: ${JSON.stringify({ n, t: n, line })}\n\n`));
}

const kTokens = Array.from({ length: 12 }, (_, i) => ({ position: 40 + i, read_bytes: i * 1e6, bus_bytes: 0, stall_us: i * 900, step_us: 20000, misses: i % 3 }));

function routes(request, response, body, json) {
  const token = new URL(request.url, "http://x").searchParams.get("token");
  if (token === null) return json({ id: "chatcmpl-1", layers: [0, 1], tokens: kTokens, dropped: 0 });
  return json({ ...kTokens[token], layers: [{ layer: 0, experts: [5, 9], weights: [0.7, 0.3], missed: [9] }, { layer: 1, experts: [1, 2], weights: [0.6, 0.4], missed: [] }] });
}

const speed = (tokens, hit) => ({ tokens_per_second: tokens, hit_rate: hit, limit: "drive" });

export const answers = {
  "/v1/moeflux/features": { admin: true, chats: false, mcp: false, residency: true, planner: true, version: "0.2.0" },
  "/v1/moeflux/telemetry": telemetry,
  "/v1/moeflux/experts": { model: "fake-model", experts: kExperts, layers: Array.from({ length: kLayers }, (_, layer) => ({ layer, experts: kExperts, expert_bytes: 3 << 20, uses: Array.from({ length: kExperts }, (__, e) => e) })) },
  "/v1/moeflux/routes/chatcmpl-1": routes,
  "/tokenize": (request, response, body, json) => json({ tokens: body.content.match(/\S+\s*/g).map((piece, id) => ({ id, piece })) }),
  "/v1/moeflux/trace": { recording: false, bytes: 4096, seconds: 9, model: "fake-model", full: false, available: true },
  "/v1/moeflux/trace/replay": { model: "fake-model", slot_bytes: 3 << 20, tokens: 120, points: [1, 2, 3, 4].map((i) => ({ slots: i * 100, bytes: i * (300 << 20), share: i / 4, hit_rate: 0.4 + i * 0.14, optimum_hit_rate: 0.5 + i * 0.12 })) },
  "/v1/moeflux/model": { name: "fake-model", family: "scripted_moe", parameters: 8.1e9, layers: kLayers, hidden_size: 2048, vocab_size: 151936, experts: kExperts, experts_per_token: 2, context_length: 32768,
    formats: [{ format: "Q4_K", expert_bytes: 2.6e6 }, { format: "Q6_K", expert_bytes: 3.4e6 }], dense_bytes: 7e8, experts_bytes: 4.1e9, template: { system_role: true, tools: true, tool_calls: true, reasoning: false }, output_format: "plain" },
  "/v1/moeflux/plan": { device: "cpu (avx2, 8 threads)", available_bytes: 8e9, dense_bytes: 7e8, state_bytes: 4e8, scratch_bytes: 1.3e8, reader_bytes: 0, reserve_bytes: 5e8, expert_cache_bytes: 4.1e9, on_device: { dense_bytes: 0 } },
  "/v1/moeflux/options": { options: [{ name: "--ctx-size", value: "32768", given: true }, { name: "--parallel", value: "4", given: false }] },
  "/v1/moeflux/log": log,
  "GET /v1/moeflux/forecast": { like: ["qwen3-30b-a3b", "gpt-oss-20b"] },
  "POST /v1/moeflux/forecast": { memory: { fits: true, expert_cache_bytes: 4e9, experts_bytes: 16e9 }, decode: { uniform: speed(5.2, 0.25), natural_low: speed(9.1, 0.6), natural_high: speed(14.4, 0.8) }, prompt: { cold: speed(80), warm: speed(200) } },
};
