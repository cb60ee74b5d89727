// A chat as a tree of messages: an edit or another answer is a sibling, and one path is shown.
// Knows nothing of the server or the browser.

export interface ToolCall { id: string; name: string; arguments: string; result?: string; failed?: boolean; running?: boolean; }

/** What the server said of an answer's making. Times are in milliseconds. */
export interface Stats {
  cached: number;
  fresh: number;
  generated: number;
  firstMs: number;
  perSecond: number;
  hitRate?: number;
  bytesRead?: number;
  stallMs?: number;
  seed?: number;
  routes?: string;
}

export interface Attachment { name: string; text: string; }

export interface Message {
  id: string;
  parent: string | null;
  role: "user" | "assistant" | "tool";
  content: string;
  reasoning?: string;
  reasoningMs?: number;
  reasoningTokens?: number;
  calls?: ToolCall[];
  callId?: string;
  attachments?: Attachment[];
  model?: string;
  stats?: Stats;
  /** "stopped", "length" or the server's words; absent for an answer that is whole. */
  ended?: string;
  error?: string;
  /** The name of the stream that is being read, for a page that is loaded again. */
  stream?: string;
  /** Characters that were there before that stream. */
  base?: number;
  at: number;
}

export interface Settings {
  system?: string;
  schema?: string;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repeat_penalty?: number;
  max_tokens?: number;
  seed?: number;
  reasoning_effort?: string;
  tools?: boolean;
}

export interface Chat {
  id: string;
  title: string;
  model?: string;
  leaf: string | null;
  messages: Record<string, Message>;
  settings: Settings;
  created: number;
  updated: number;
}

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (b) => (b % 36).toString(36)).join("");
}

export function newChat(settings: Settings = {}, now = Date.now()): Chat {
  return { id: newId(), title: "New chat", leaf: null, messages: {}, settings, created: now, updated: now };
}

/** The shown messages, first to last. Bad links end it instead of looping. */
export function pathOf(chat: Chat): Message[] {
  const path: Message[] = [];
  const seen = new Set<string>();
  for (let id = chat.leaf; id !== null && chat.messages[id] && !seen.has(id); id = chat.messages[id].parent) {
    seen.add(id);
    path.unshift(chat.messages[id]);
  }
  return path;
}

export function childrenOf(chat: Chat, parent: string | null): Message[] {
  return Object.values(chat.messages)
    .filter((m) => m.parent === parent)
    .sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
}

export function siblingsOf(chat: Chat, id: string): Message[] {
  return childrenOf(chat, chat.messages[id].parent);
}

/** Adds a message below `parent` and shows it. */
export function add(chat: Chat, parent: string | null, fields: Partial<Message> & { role: Message["role"] }): Message {
  const last = childrenOf(chat, parent).at(-1);
  const at = Math.max(Date.now(), (last?.at ?? 0) + 1);
  const message: Message = { content: "", ...fields, id: newId(), parent, at };
  chat.messages[message.id] = message;
  chat.leaf = message.id;
  chat.updated = at;
  return message;
}

/** Shows the branch of `id`, down to its newest end. */
export function show(chat: Chat, id: string): void {
  let at = id;
  const seen = new Set<string>();
  for (let below = childrenOf(chat, at); below.length > 0 && !seen.has(at); below = childrenOf(chat, at)) {
    seen.add(at);
    at = below[below.length - 1].id;
  }
  chat.leaf = at;
}

/** Removes a message and all below; the branch beside it is shown, or what was above. */
export function remove(chat: Chat, id: string): void {
  const { parent } = chat.messages[id];
  const beside = siblingsOf(chat, id).filter((m) => m.id !== id);
  const todo = [id];
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    todo.push(...childrenOf(chat, next).map((m) => m.id));
    delete chat.messages[next];
  }
  if (beside.length > 0) show(chat, beside[beside.length - 1].id);
  else chat.leaf = parent;
}

/** The text of a user's message as the model gets it, files first. */
export function fullText(message: Message): string {
  const files = (message.attachments ?? []).map((a) => {
    const longest = Math.max(2, ...(a.text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `${a.name}\n${fence}\n${a.text}\n${fence}\n\n`;
  });
  return files.join("") + message.content;
}

/** The messages of a request that asks for what follows the shown path. */
export function requestMessages(chat: Chat, path: Message[]): object[] {
  const messages: object[] = [];
  if (chat.settings.system?.trim()) messages.push({ role: "system", content: chat.settings.system });
  for (const m of path) {
    if (m.role === "user") messages.push({ role: "user", content: fullText(m) });
    else if (m.role === "tool") messages.push({ role: "tool", tool_call_id: m.callId, content: m.content });
    else {
      if (m.error && !m.content && !m.calls?.length) continue;
      const message: Record<string, unknown> = { role: "assistant", content: m.content };
      if (m.reasoning) message.reasoning_content = m.reasoning;
      if (m.calls?.length) {
        message.tool_calls = m.calls.map((c) => ({
          id: c.id, type: "function", function: { name: c.name, arguments: c.arguments } }));
      }
      messages.push(message);
    }
  }
  return messages;
}

export function titleOf(text: string): string {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 57)}…` : line || "New chat";
}

/** Whether all words of `query` occur in a chat's title or messages. */
export function matches(chat: Chat, query: string): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = [chat.title, ...Object.values(chat.messages).map((m) => m.content)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}
