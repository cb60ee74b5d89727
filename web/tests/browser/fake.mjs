// A server of a script: gives out the built page and answers as the last question says. It is slow,
// drops connections and errs on demand, and remembers what was asked of it.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const built = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..", "build", "web");

function pageFiles() {
  const files = new Map();
  for (const line of readFileSync(join(built, "files.txt"), "utf8").trim().split("\n")) {
    const [name, type] = line.split(" ");
    files.set(name, { type, bytes: readFileSync(join(built, `${name}.gz`)) });
  }
  return files;
}

const kPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
  "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Frames of an answer that says `pieces`. */
export function framesOf(pieces, { reasoning = [], calls = null, finish = "stop", cached = 3 } = {}) {
  const frames = [{ choices: [{ delta: { role: "assistant", content: null }, finish_reason: null }] }];
  const total = 40;
  for (const processed of [cached, 20, total]) {
    frames.push({ choices: [], prompt_progress: { total, cache: cached, processed, time_ms: processed * 10, queue_position: 0 } });
  }
  for (const text of reasoning) frames.push({ choices: [{ delta: { reasoning_content: text }, finish_reason: null }] });
  pieces.forEach((content, i) => frames.push({
    choices: [{ delta: { content }, finish_reason: null }],
    timings: { cache_n: cached, prompt_n: total - cached, prompt_ms: 400, predicted_n: i + 1, predicted_per_second: 12.5, queued_ms: 1 } }));
  for (const [i, call] of (calls ?? []).entries()) {
    frames.push({ choices: [{ delta: { tool_calls: [{ index: i, id: `call_${i}`, type: "function", function: { name: call.name, arguments: "" } }] }, finish_reason: null }] });
    for (const piece of call.arguments.match(/.{1,6}/gs) ?? []) {
      frames.push({ choices: [{ delta: { tool_calls: [{ index: i, function: { arguments: piece } }] }, finish_reason: null }] });
    }
  }
  frames.push({
    choices: [{ delta: {}, finish_reason: calls ? "tool_calls" : finish }],
    timings: { cache_n: cached, prompt_n: total - cached, prompt_ms: 400, predicted_n: pieces.length, predicted_per_second: 12.5, queued_ms: 1 },
    moeflux: { seed: 7, expert_hit_rate: 0.75, bytes_read: 3 << 20, stall_ms: 120, routes: "chatcmpl-1" } });
  return frames;
}

export class Fake {
  /** `script(body)` gives {frames, delay, dropAt, status, error} of a chat completion; a promise
   *  among the frames holds up what follows. */
  constructor(script, answers = {}) {
    this.script = script;
    this.answers = answers;  // path, or "METHOD path": a value, or a function (request, response, body)
    this.asked = [];
    this.bodies = [];
    this.streams = new Map();
    this.key = null;
    this.files = pageFiles();
    this.server = createServer((request, response) => {
      this.handle(request, response).catch((error) => response.destroy(error));
    });
  }

  async start() {
    await new Promise((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    this.address = `http://127.0.0.1:${this.server.address().port}`;
    return this;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async handle(request, response) {
    const url = new URL(request.url, "http://x");
    this.asked.push(`${request.method} ${url.pathname}`);
    const json = (value, status = 200) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(value));
    };
    const name = url.pathname === "/" ? "index.html" : url.pathname.replace(/^\/page\//, "");
    const file = this.files.get(name);
    if (file) {
      response.writeHead(200, { "Content-Type": `${file.type}; charset=utf-8`, "Content-Encoding": "gzip", "Content-Security-Policy": kPolicy });
      return response.end(file.bytes);
    }
    if (this.key && request.headers.authorization !== `Bearer ${this.key}`) {
      return json({ error: { message: "no valid API key" } }, 401);
    }
    let text = "";
    for await (const piece of request) text += piece;
    const body = text ? JSON.parse(text) : undefined;
    if (body) this.bodies.push([url.pathname, body]);
    const own = this.answers[`${request.method} ${url.pathname}`] ?? this.answers[url.pathname];
    if (typeof own === "function") return own(request, response, body, json);
    if (own !== undefined) return json(own);
    if (url.pathname === "/v1/models") return json({ data: [{ id: "fake-model", status: { value: "loaded" } }] });
    if (url.pathname === "/v1/chat/completions") return this.chat(request, response, body, json);
    if (url.pathname === "/v1/stream") return this.resume(request, response, url, json);
    return json({ error: { message: `no ${url.pathname} here` } }, 404);
  }

  async chat(request, response, body, json) {
    const answer = await this.script(body);
    if (answer.status) return json({ error: { message: answer.error } }, answer.status);
    const stream = { events: [], done: false, ended: false };
    const name = request.headers["x-conversation-id"];
    this.streams.set(name, stream);
    const produce = (async () => {
      for (const next of answer.frames) {
        const frame = await next;
        if (answer.delay) await sleep(answer.delay);
        if (stream.ended) break;
        if (frame === undefined) continue;
        stream.events.push(JSON.stringify(frame));
      }
      if (answer.midError) stream.events.push(JSON.stringify({ error: { message: answer.midError } }));
      stream.events.push("[DONE]");
      stream.done = true;
    })();
    await this.send(response, stream, 0, answer.dropAt);
    await produce;
  }

  async send(response, stream, from, dropAt) {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.flushHeaders();
    for (let next = from; ; ) {
      if (next < stream.events.length) {
        if (next === dropAt) return response.destroy();
        response.write(`id: ${next}\ndata: ${stream.events[next]}\n\n`);
        ++next;
      } else if (stream.done || response.destroyed) {
        return response.end();
      } else {
        await sleep(5);
      }
    }
  }

  resume(request, response, url, json) {
    const stream = this.streams.get(url.searchParams.get("conv_id"));
    if (!stream) return json({ error: { message: "no such stream" } }, 404);
    if (request.method === "DELETE") {
      stream.ended = true;
      response.writeHead(204);
      return response.end();
    }
    return this.send(response, stream, Number(url.searchParams.get("from") ?? 0));
  }
}
