// Chats as files: all of them as JSON, or the shown path of one as Markdown. What comes in is read
// field by field, as anybody may have written it.
import { type Chat, type Message, type Settings, fullText, newId, pathOf } from "./tree.ts";

export const kFormat = "moeflux-chats";

export function exportJson(chats: Chat[]): string {
  return JSON.stringify({ format: kFormat, version: 1, chats }, null, 1);
}

export function exportMarkdown(chat: Chat): string {
  const parts = [`# ${chat.title}\n`];
  if (chat.settings.system) parts.push(`## System\n\n${chat.settings.system}\n`);
  for (const m of pathOf(chat)) {
    const name = { user: "You", assistant: m.model ?? "Assistant", tool: "Tool" }[m.role];
    parts.push(`## ${name}\n`);
    for (const call of m.calls ?? []) parts.push(`Call of \`${call.name}\`: \`${call.arguments}\`\n`);
    parts.push(`${m.role === "user" ? fullText(m) : m.content}\n`);
  }
  return parts.join("\n");
}

type Fields = Record<string, unknown>;
const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown) => (typeof value === "string" ? value : undefined);
const number = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);

/** Drops what is undefined, so that an object read back equals the one written. */
function present<T extends object>(fields: T): T {
  for (const key of Object.keys(fields) as (keyof T)[]) if (fields[key] === undefined) delete fields[key];
  return fields;
}

function readMessage(value: unknown): Message | string {
  if (!isObject(value)) return "a message is not an object";
  const role = value.role;
  if (role !== "user" && role !== "assistant" && role !== "tool") {
    return `role is ${JSON.stringify(role)}, expected user, assistant or tool`;
  }
  const content = text(value.content);
  const id = text(value.id);
  if (content === undefined || id === undefined) return "a message has no text or no id";
  const list = (field: unknown) => (Array.isArray(field) ? field.filter(isObject) : []);
  const calls = list(value.calls).map((c) => present({
    id: text(c.id) ?? newId(), name: text(c.name) ?? "", arguments: text(c.arguments) ?? "",
    result: text(c.result), failed: c.failed === true ? true : undefined }));
  const attachments = list(value.attachments).map((a) => ({ name: text(a.name) ?? "", text: text(a.text) ?? "" }));
  const stats = isObject(value.stats) ? value.stats : undefined;
  return present<Message>({
    id, parent: text(value.parent) ?? null, role, content, reasoning: text(value.reasoning),
    reasoningMs: number(value.reasoningMs), reasoningTokens: number(value.reasoningTokens),
    calls: calls.length ? calls : undefined, callId: text(value.callId),
    attachments: attachments.length ? attachments : undefined, model: text(value.model),
    stats: stats && present({
      cached: number(stats.cached) ?? 0, fresh: number(stats.fresh) ?? 0, generated: number(stats.generated) ?? 0,
      firstMs: number(stats.firstMs) ?? 0, perSecond: number(stats.perSecond) ?? 0, hitRate: number(stats.hitRate),
      bytesRead: number(stats.bytesRead), stallMs: number(stats.stallMs), seed: number(stats.seed) }),
    ended: text(value.ended), error: text(value.error), at: number(value.at) ?? 0 });
}

function readSettings(value: unknown): Settings {
  if (!isObject(value)) return {};
  return present<Settings>({
    system: text(value.system), schema: text(value.schema), temperature: number(value.temperature),
    top_p: number(value.top_p), top_k: number(value.top_k), min_p: number(value.min_p),
    repeat_penalty: number(value.repeat_penalty), max_tokens: number(value.max_tokens), seed: number(value.seed),
    reasoning_effort: text(value.reasoning_effort), tools: value.tools === true ? true : undefined });
}

function readChat(value: unknown): Chat | string {
  if (!isObject(value) || !isObject(value.messages)) return "a chat has no messages";
  const messages: Record<string, Message> = Object.create(null);
  for (const one of Object.values(value.messages)) {
    const message = readMessage(one);
    if (typeof message === "string") return message;
    messages[message.id] = message;
  }
  const leaf = text(value.leaf) ?? null;
  for (const m of Object.values(messages)) {
    if (m.parent !== null && !messages[m.parent]) return `message ${m.id} follows ${m.parent}, which is absent`;
  }
  return present<Chat>({
    id: text(value.id) ?? newId(), title: text(value.title) ?? "Imported", model: text(value.model),
    leaf: leaf !== null && messages[leaf] ? leaf : null, messages: { ...messages },
    settings: readSettings(value.settings), created: number(value.created) ?? 0, updated: number(value.updated) ?? 0 });
}

/** The chats of a file, or what is wrong with it. */
export function importJson(file: string): Chat[] | string {
  let whole: unknown;
  try {
    whole = JSON.parse(file);
  } catch (error) {
    return `not JSON: ${(error as Error).message}`;
  }
  if (!isObject(whole) || whole.format !== kFormat || !Array.isArray(whole.chats)) {
    return `not an export of this page, expected "format": "${kFormat}"`;
  }
  if (whole.version !== 1) return `version is ${JSON.stringify(whole.version)}, expected 1`;
  const chats: Chat[] = [];
  for (const [i, one] of whole.chats.entries()) {
    const chat = readChat(one);
    if (typeof chat === "string") return `chat ${i + 1}: ${chat}`;
    chats.push(chat);
  }
  return chats;
}
