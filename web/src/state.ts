// What the page knows and does: chats, models and answers that are being read. Components draw it
// and are told when it changes.
import * as api from "./api.ts";
import * as store from "./store.ts";
import * as tree from "./tree.ts";
import { BlockSplitter } from "./markdown.ts";
import type { Chat, Message, ToolCall } from "./tree.ts";

export interface ModelEntry { id: string; state: string; progress?: number; error?: string; }
export interface Features { admin: boolean; chats: boolean; mcp: boolean; residency: boolean; planner: boolean; version: string; }
export interface Tool { server: string; tool: string; name: string; description: string; schema: object; }
export type Tab = "chat" | "experts" | "model";

/** An answer that is being read. */
export interface Run {
  message: Message;
  controller: AbortController;
  phase: "waiting" | "queued" | "loading" | "prompt" | "writing";
  queue: number;
  prompt: { total: number; processed: number; cached: number; ms: number } | null;
  splitter: BlockSplitter;
  reasoningFrom: number;
  perSecond: number;
  dropped: boolean;
}

const listeners = new Set<() => void>();
const versions = new WeakMap<Message, number>();
let isScheduled = false;

export const app = {
  tab: "chat" as Tab,
  chats: [] as Chat[],
  current: null as Chat | null,
  query: "",
  models: [] as ModelEntry[],
  model: "",
  features: null as Features | null,
  tools: [] as Tool[],
  allowed: new Set<string>(),
  runs: new Map<string, Run>(),
  note: "",
  said: "",
  wantsKey: false,
  openRoutes: null as { chat: Chat; message: Message } | null,
};

export function onChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Draws at most once a frame. */
export function changed(message?: Message): void {
  if (message) versions.set(message, versionOf(message) + 1);
  if (isScheduled) return;
  isScheduled = true;
  const draw = () => {
    isScheduled = false;
    for (const listener of listeners) listener();
  };
  if (document.hidden) setTimeout(draw, 250);
  else requestAnimationFrame(draw);
}

export function versionOf(message: Message): number {
  return versions.get(message) ?? 0;
}

export function tell(note: string): void {
  app.note = note;
  changed();
}

function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const saves = new Map<string, Promise<void>>();
/** Saves a chat here, and on the server where that keeps chats; one save of it at a time. */
export function save(chat: Chat): Promise<void> {
  const before = saves.get(chat.id) ?? Promise.resolve();
  const next = before.then(async () => {
    await store.putChat(chat);
    if (app.features?.chats && !app.runs.has(chat.id)) await api.post(`/v1/moeflux/chats/${chat.id}`, chat);
  }).catch((error) => tell(`The chat was not saved: ${problemOf(error)}`));
  saves.set(chat.id, next);
  return next;
}

export async function start(): Promise<void> {
  api.onKeyWanted(() => {
    app.wantsKey = true;
    changed();
  });
  try {
    app.chats = (await store.allChats()).sort((a, b) => b.updated - a.updated);
  } catch (error) {
    tell(`Chats of this browser cannot be read: ${problemOf(error)}`);
  }
  const named = location.hash.match(/^#chat=([\w-]+)$/)?.[1];
  const found = app.chats.find((chat) => chat.id === named);
  openChat(found ?? newChat());
  await connect();
  for (const chat of app.chats) {
    const cut = Object.values(chat.messages).find((m) => m.stream);
    if (cut) void read(chat, cut, undefined);
  }
}

/** Asks the server what it has; again once there is a key. */
export async function connect(): Promise<void> {
  await refreshModels();
  app.features = await api.get<Features>("/v1/moeflux/features").catch(() => null);
  if (app.features?.mcp) await refreshTools();
  if (app.features?.chats) await fetchChats().catch((error) => tell(problemOf(error)));
  changed();
}

async function fetchChats(): Promise<void> {
  const { chats } = await api.get<{ chats: { id: string }[] }>("/v1/moeflux/chats");
  const here = new Set(app.chats.map((chat) => chat.id));
  for (const { id } of chats) {
    if (here.has(id)) continue;
    const chat = await api.get<Chat>(`/v1/moeflux/chats/${encodeURIComponent(id)}`);
    const { importJson, kFormat } = await import("./exchange.ts");
    const read = importJson(JSON.stringify({ format: kFormat, version: 1, chats: [chat] }));
    if (typeof read !== "string") app.chats.push(read[0]);
  }
  app.chats.sort((a, b) => b.updated - a.updated);
}

async function refreshTools(): Promise<void> {
  interface Server { name: string; state: string; error?: string; tools?: { name: string; description?: string; input_schema?: object }[]; }
  const { servers } = await api.get<{ servers: Server[] }>("/v1/moeflux/mcp").catch(() => ({ servers: [] as Server[] }));
  const count = new Map<string, number>();
  for (const s of servers) for (const t of s.tools ?? []) count.set(t.name, (count.get(t.name) ?? 0) + 1);
  app.tools = servers.flatMap((s) => (s.tools ?? []).map((t) => ({
    server: s.name, tool: t.name, description: t.description ?? "", schema: t.input_schema ?? { type: "object" },
    // Two servers may have tools of one name.
    name: count.get(t.name)! > 1 ? `${s.name.replace(/[^a-zA-Z0-9_-]+/g, "_")}__${t.name}`.slice(0, 64) : t.name })));
}

export async function refreshModels(): Promise<void> {
  interface Listed { id: string; status?: { value: string; progress?: number; failed?: boolean; error?: string }; }
  try {
    const { data } = await api.get<{ data: Listed[] }>("/v1/models");
    app.models = data.map((m) => ({
      id: m.id, state: m.status?.failed ? "failed" : (m.status?.value ?? "loaded"),
      progress: m.status?.progress, error: m.status?.error }));
    if (!app.models.some((m) => m.id === app.model)) {
      app.model = (app.models.find((m) => m.state === "loaded") ?? app.models[0])?.id ?? "";
    }
    if (app.note.startsWith("The server")) app.note = "";
  } catch (error) {
    tell(`The server does not answer: ${problemOf(error)}`);
  }
  changed();
}

export function newChat(): Chat {
  return tree.newChat();
}

export function openChat(chat: Chat): void {
  app.current = chat;
  if (chat.model && app.models.some((m) => m.id === chat.model)) app.model = chat.model;
  app.tab = "chat";
  // The address names the chat, so that a page that is loaded again shows it.
  history.replaceState(null, "", app.chats.includes(chat) ? `#chat=${chat.id}` : location.pathname);
  changed();
}

export async function removeChat(chat: Chat): Promise<void> {
  stop(chat);
  app.chats = app.chats.filter((one) => one !== chat);
  if (app.current === chat) openChat(newChat());
  await store.deleteChat(chat.id);
  if (app.features?.chats) await api.send("DELETE", `/v1/moeflux/chats/${chat.id}`).catch(() => undefined);
  changed();
}

export async function addChats(chats: Chat[]): Promise<void> {
  for (const chat of chats) {
    if (app.chats.some((one) => one.id === chat.id)) chat.id = tree.newId();
    app.chats.push(chat);
    await save(chat);
  }
  app.chats.sort((a, b) => b.updated - a.updated);
  changed();
}

function keep(chat: Chat): void {
  if (!app.chats.includes(chat)) app.chats.unshift(chat);
  if (app.current === chat) history.replaceState(null, "", `#chat=${chat.id}`);
}

/** Asks a question below `parent`, the end of what is shown. */
export function ask(chat: Chat, parent: string | null, content: string, attachments: tree.Attachment[]): void {
  tree.add(chat, parent, { role: "user", content, attachments: attachments.length ? attachments : undefined });
  if (chat.title === "New chat") chat.title = tree.titleOf(content || attachments[0]?.name || "");
  generate(chat, chat.leaf);
}

function settingsOf(chat: Chat): Record<string, unknown> {
  const s = chat.settings;
  const fields: Record<string, unknown> = {};
  for (const name of ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"] as const) {
    if (s[name] !== undefined) fields[name] = s[name];
  }
  if (s.reasoning_effort) fields.reasoning_effort = s.reasoning_effort;
  if (s.schema?.trim()) {
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(s.schema) } };
  }
  if (s.tools && app.tools.length > 0) {
    fields.tools = app.tools.map((t) => ({
      type: "function", function: { name: t.name, description: t.description, parameters: t.schema } }));
  }
  return fields;
}

/** Has the model answer what ends with `parent`; `continued` goes on with an answer that was cut. */
export function generate(chat: Chat, parent: string | null, continued?: Message): void {
  if (app.runs.has(chat.id)) return;
  let fields: Record<string, unknown>;
  try {
    fields = settingsOf(chat);
  } catch (error) {
    return tell(`The JSON schema of this chat: ${problemOf(error)}`);
  }
  const message = continued ?? tree.add(chat, parent, { role: "assistant" });
  const path = tree.pathOf(chat);
  const messages = tree.requestMessages(chat, continued ? path : path.slice(0, -1));
  chat.model = message.model = app.model;
  message.stream = `page-${tree.newId()}`;
  message.base = message.content.length;
  delete message.ended;
  delete message.error;
  keep(chat);
  const body = {
    model: app.model, messages, ...fields, stream: true, stream_options: { include_usage: true },
    return_progress: true, timings_per_token: true,
    ...(app.features ? { return_routes: true } : {}),
    ...(continued ? { continue_final_message: true } : {}) };
  void read(chat, message, body);
}

interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  reasoning?: string | null;
  tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}
interface Frame {
  error?: { message: string };
  choices?: { delta: Delta; finish_reason: string | null }[];
  prompt_progress?: { total: number; cache: number; processed: number; time_ms: number; queue_position?: number };
  timings?: { cache_n: number; prompt_n: number; prompt_ms: number; predicted_n: number; predicted_per_second: number; queued_ms?: number };
  model_status?: { value: string; progress: number };  // while the model is loaded
  moeflux?: { seed?: number; expert_hit_rate?: number; bytes_read?: number; stall_ms?: number; routes?: string };
  usage?: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details?: { cached_tokens: number }; completion_tokens_details?: { reasoning_tokens?: number } } | null;
}

export function takeFrame(run: Run, frame: Frame, now: number): void {
  const { message } = run;
  const model = app.models.find((m) => m.id === message.model);
  if (frame.model_status) {
    run.phase = "loading";
    if (model) [model.state, model.progress] = [frame.model_status.value, frame.model_status.progress];
  } else if (model?.state === "loading") {
    model.state = "loaded";
  }
  const progress = frame.prompt_progress;
  if (progress) {
    run.phase = (progress.queue_position ?? 0) > 0 ? "queued" : "prompt";
    run.queue = progress.queue_position ?? 0;
    run.prompt = { total: progress.total, processed: progress.processed, cached: progress.cache, ms: progress.time_ms };
  }
  for (const choice of frame.choices ?? []) {
    const { delta } = choice;
    const reasoning = delta.reasoning_content ?? delta.reasoning;
    if (reasoning) {
      if (!run.reasoningFrom) run.reasoningFrom = now;
      message.reasoning = (message.reasoning ?? "") + reasoning;
      message.reasoningMs = now - run.reasoningFrom;
      message.reasoningTokens = (message.reasoningTokens ?? 0) + 1;
      run.phase = "writing";
    }
    if (delta.content) {
      message.content += delta.content;
      run.splitter.add(delta.content);
      run.phase = "writing";
    }
    for (const call of delta.tool_calls ?? []) {
      message.calls ??= [];
      const one = (message.calls[call.index] ??= { id: "", name: "", arguments: "" });
      if (call.id) one.id = call.id;
      if (call.function?.name) one.name += call.function.name;
      one.arguments += call.function?.arguments ?? "";
      run.phase = "writing";
    }
    if (choice.finish_reason) message.ended = choice.finish_reason;
  }
  const t = frame.timings;
  if (t) {
    run.perSecond = t.predicted_per_second;
    message.stats = {
      ...message.stats, cached: t.cache_n, fresh: t.prompt_n, generated: t.predicted_n,
      perSecond: t.predicted_per_second, firstMs: t.prompt_ms + (t.queued_ms ?? 0) };
  }
  const m = frame.moeflux;
  if (m && message.stats) {
    Object.assign(message.stats, {
      seed: m.seed ?? message.stats.seed, hitRate: m.expert_hit_rate ?? message.stats.hitRate,
      bytesRead: m.bytes_read ?? message.stats.bytesRead, stallMs: m.stall_ms ?? message.stats.stallMs,
      routes: m.routes ?? message.stats.routes });
  }
  const details = frame.usage?.completion_tokens_details;
  if (details?.reasoning_tokens) message.reasoningTokens = details.reasoning_tokens;
}

/** Says finished sentences to those who hear the page. */
function sayMore(run: Run, said: { upTo: number; at: number }): void {
  if (performance.now() - said.at < 1000) return;
  said.at = performance.now();
  const rest = run.message.content.slice(said.upTo);
  const end = Math.max(...[". ", "! ", "? ", ".\n", "!\n", "?\n", ":\n"].map((mark) => rest.lastIndexOf(mark)));
  if (end < 0) return;
  app.said = rest.slice(0, end + 1).slice(-500);
  said.upTo += end + 1;
}

function blankRun(message: Message): Run {
  const splitter = new BlockSplitter();
  splitter.add(message.content);
  return { message, controller: new AbortController(), phase: "waiting", queue: 0, prompt: null, splitter,
           reasoningFrom: 0, perSecond: 0, dropped: false };
}

async function read(chat: Chat, message: Message, body: object | undefined): Promise<void> {
  const name = message.stream!;
  if (!body) {  // begins with the first event again
    message.content = message.content.slice(0, message.base ?? 0);
    delete message.reasoning;
    delete message.reasoningTokens;
    delete message.calls;
  }
  const run = blankRun(message);
  app.runs.set(chat.id, run);
  await save(chat);
  changed(message);
  let saved = performance.now();
  const said = { upTo: message.content.length, at: 0 };
  try {
    for await (const event of api.answer(name, body, run.controller.signal)) {
      if (event.data === "[DONE]") break;
      const frame = JSON.parse(event.data) as Frame;
      if (frame.error) throw new api.ApiError(500, frame.error.message);
      takeFrame(run, frame, performance.now());
      sayMore(run, said);
      changed(message);
      if (performance.now() - saved > 3000) {
        saved = performance.now();
        void save(chat);
      }
    }
  } catch (error) {
    if (run.controller.signal.aborted) message.ended = "stopped";
    else if (!body && error instanceof api.ApiError && error.status === 404) message.ended = "stopped";
    else message.error = problemOf(error);
  }
  delete message.stream;
  delete message.base;
  app.runs.delete(chat.id);
  app.said = message.error ? `Error: ${message.error}` : "The answer is complete.";
  chat.updated = Date.now();
  app.chats.sort((a, b) => b.updated - a.updated);
  changed(message);
  await save(chat);
  void refreshModels();
  if (message.calls?.length && !message.error && message.ended !== "stopped") runAllowed(chat, message);
}

export function stop(chat: Chat): void {
  const run = app.runs.get(chat.id);
  if (!run) return;
  // The server goes on where a client merely leaves.
  if (run.message.stream) void api.endAnswer(run.message.stream);
  run.controller.abort();
}

function toolOf(call: ToolCall): Tool | undefined {
  return app.tools.find((t) => t.name === call.name);
}

function runAllowed(chat: Chat, message: Message): void {
  for (const call of message.calls ?? []) {
    if (call.result === undefined && toolOf(call) && app.allowed.has(call.name)) void runCall(chat, message, call);
  }
}

/** Runs a call by the server, and answers when all calls of the message have results. */
export async function runCall(chat: Chat, message: Message, call: ToolCall): Promise<void> {
  const tool = toolOf(call);
  if (!tool || call.running) return;
  call.running = true;
  changed(message);
  try {
    const done = await api.post<{ content: string; is_error: boolean }>("/v1/moeflux/mcp", {
      server: tool.server, tool: tool.tool, arguments: JSON.parse(call.arguments || "{}") });
    endCall(chat, message, call, done.content, done.is_error);
  } catch (error) {
    endCall(chat, message, call, problemOf(error), true);
  }
}

/** Gives a call its result: a tool's, or what the person says in place of one. */
export function endCall(chat: Chat, message: Message, call: ToolCall, result: string, failed: boolean): void {
  delete call.running;
  call.result = result;
  if (failed) call.failed = true;
  changed(message);
  void save(chat);
  if (message.calls!.some((c) => c.result === undefined)) return;
  let parent = message.id;
  for (const c of message.calls!) parent = tree.add(chat, parent, { role: "tool", content: c.result!, callId: c.id }).id;
  generate(chat, parent);
}
