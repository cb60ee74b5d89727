// The chat: the list of chats, the thread of messages, and where one writes.
import { memo } from "./memo.ts";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { app, ask, changed, endCall, generate, openChat, removeChat, runCall, save, stop, tell, versionOf, addChats, newChat, type Run } from "./state.ts";
import { exportJson, exportMarkdown, importJson } from "./exchange.ts";
import { BlockSplitter, renderBlock } from "./markdown.ts";
import { bytes, seconds } from "./format.ts";
import { SettingsForm } from "./settings.tsx";
import * as tree from "./tree.ts";
import type { Attachment, Chat, Message, ToolCall } from "./tree.ts";

const Block = memo(function Block({ source, whole }: { source: string; whole: boolean }) {
  return <div class="block" dangerouslySetInnerHTML={{ __html: renderBlock(source, whole) }} />;
}, (a, b) => a.source === b.source && a.whole === b.whole);

// Blocks that are finished, so many together: a long answer compares a few groups in each frame.
const kGroup = 32;
const Group = memo(function Group({ blocks }: { blocks: string[] }) {
  return <>{blocks.map((block, i) => <Block key={i} source={block} whole />)}</>;
}, (a, b) => a.blocks.length === b.blocks.length && a.blocks.every((block, i) => block === b.blocks[i]));

function groupsOf(blocks: string[]): string[][] {
  const groups: string[][] = [];
  for (let i = 0; i < blocks.length; i += kGroup) groups.push(blocks.slice(i, i + kGroup));
  return groups;
}

function Markdown({ text, run }: { text: string; run?: Run }) {
  let splitter = run?.splitter;
  if (!splitter) {
    splitter = new BlockSplitter();
    splitter.add(text);
  }
  return (
    <div class="markdown">
      {groupsOf(splitter.blocks).map((blocks, i) => <Group key={i} blocks={blocks} />)}
      {splitter.tail && <Block key="tail" source={splitter.tail} whole={!run} />}
    </div>
  );
}

export function copy(text: string): void {
  // Pages of other machines without TLS have no clipboard.
  const written = navigator.clipboard?.writeText(text) ?? Promise.reject(new Error("no clipboard"));
  written.then(() => tell("Copied."), () => tell("The browser does not let this page copy."));
}

function onCopyClick(event: Event): void {
  const button = (event.target as Element).closest("button.copy");
  const code = button?.closest(".code")?.querySelector("code");
  if (code) copy(code.textContent ?? "");
}

function Reasoning({ message, run }: { message: Message; run?: Run }) {
  if (!message.reasoning) return null;
  const thinking = run && !message.content && !message.calls?.length;
  const told = `${message.reasoningTokens ?? 0} tokens, ${seconds(message.reasoningMs ?? 0)}`;
  return (
    <details class="reasoning">
      <summary>{thinking ? "Thinking" : "Thought"} <span class="faint">{told}</span></summary>
      <div class="reasoning-text">{message.reasoning}</div>
    </details>
  );
}

function CallCard({ chat, message, call, busy }: { chat: Chat; message: Message; call: ToolCall; busy: boolean }) {
  const [typed, setTyped] = useState("");
  const tool = app.tools.find((t) => t.name === call.name);
  return (
    <section class={`call ${call.failed ? "failed" : ""}`} aria-label={`Call of ${call.name}`}>
      <header><span class="call-name">{call.name || "…"}</span>{tool && <span class="faint">{tool.server}</span>}</header>
      <pre tabIndex={0}>{call.arguments}</pre>
      {call.result !== undefined
        ? <details open={call.result.length < 2000}><summary>{call.failed ? "Error" : "Result"}</summary><pre tabIndex={0}>{call.result.slice(0, 100_000)}</pre></details>
        : call.running ? <p role="status">Running…</p>
        : !busy && (tool
          ? <div class="row">
              <button type="button" class="primary" onClick={() => void runCall(chat, message, call)}>Run</button>
              <button type="button" onClick={() => { app.allowed.add(call.name); void runCall(chat, message, call); }}>Always run this tool</button>
              <button type="button" onClick={() => endCall(chat, message, call, "The person did not allow this call.", true)}>Refuse</button>
            </div>
          : <form class="row" onSubmit={(e) => { e.preventDefault(); endCall(chat, message, call, typed, false); }}>
              <input aria-label="Result of the call" placeholder="Result" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} />
              <button type="submit">Answer</button>
            </form>)}
    </section>
  );
}

function Progress({ run }: { run: Run }) {
  if (run.phase === "writing") {
    return <p class="progress" role="status"><span class="faint">{run.perSecond > 0 ? `${run.perSecond.toFixed(1)} tokens/s` : "Writing…"}</span></p>;
  }
  if (run.phase === "queued") return <p class="progress" role="status">Waiting: {run.queue} before this</p>;
  if (run.phase === "prompt" && run.prompt) {
    const { total, processed, cached, ms } = run.prompt;
    const done = processed - cached;
    const left = done > 0 && ms > 0 ? ((total - processed) * ms) / done : null;
    return (
      <p class="progress" role="status">
        <progress max={total} value={processed} aria-label="Tokens of the prompt that have been read" />
        <span> Reading the prompt: {processed} of {total} tokens{left !== null && processed < total ? `, about ${seconds(left)} left` : ""}</span>
      </p>
    );
  }
  if (run.phase === "loading") {
    const progress = app.models.find((m) => m.id === run.message.model)?.progress ?? 0;
    return <p class="progress" role="status"><progress max={1} value={progress} aria-label="Loading the model" /> Loading {run.message.model}</p>;
  }
  return <p class="progress" role="status">Waiting…</p>;
}

function StatsLine({ message, chat }: { message: Message; chat: Chat }) {
  const s = message.stats;
  if (!s) return null;
  return (
    <p class="stats">
      <span>{s.cached} cached + {s.fresh} new tokens</span>
      <span>first token {seconds(s.firstMs)}</span>
      <span>{s.generated} tokens{s.perSecond > 0 && `, ${s.perSecond.toFixed(1)} tokens/s`}</span>
      {s.hitRate !== undefined && <span>hits {(100 * s.hitRate).toFixed(0)} %</span>}
      {s.bytesRead !== undefined && s.bytesRead > 0 && <span>{bytes(s.bytesRead)} read, {seconds(s.stallMs ?? 0)} waited</span>}
      {s.routes && <button type="button" class="link" onClick={() => { app.openRoutes = { chat, message }; app.tab = "experts"; changed(); }}>Routes</button>}
    </p>
  );
}

function Branches({ chat, message }: { chat: Chat; message: Message }) {
  const all = tree.siblingsOf(chat, message.id);
  if (all.length < 2) return null;
  const at = all.indexOf(message);
  const go = (to: number) => { tree.show(chat, all[to].id); void save(chat); changed(); };
  return (
    <span class="branches" role="group" aria-label="Versions">
      <button type="button" aria-label="Version before" disabled={at === 0} onClick={() => go(at - 1)}>‹</button>
      <span>{at + 1}/{all.length}</span>
      <button type="button" aria-label="Version after" disabled={at === all.length - 1} onClick={() => go(at + 1)}>›</button>
    </span>
  );
}

function Editor({ message, done }: { message: Message; done: (text: string | null) => void }) {
  const [text, setText] = useState(message.content);
  const box = useRef<HTMLTextAreaElement>(null);
  useEffect(() => { box.current?.focus(); }, []);
  return (
    <form class="editor" onSubmit={(e) => { e.preventDefault(); done(text); }} onKeyDown={(e) => e.key === "Escape" && done(null)}>
      <textarea aria-label="Edited message" rows={4} value={text} ref={box}
        onInput={(e) => setText(e.currentTarget.value)} />
      <div class="row"><button type="submit" class="primary">Save</button><button type="button" onClick={() => done(null)}>Cancel</button></div>
    </form>
  );
}

const MessageView = memo(function MessageView({ chat, message, run, last, busy }: {
  chat: Chat; message: Message; run?: Run; last: boolean; busy: boolean; version: number; branches: number; tools: number;
}) {
  const [editing, setEditing] = useState(false);
  if (message.role === "tool") return null;
  const isUser = message.role === "user";
  function edited(text: string | null) {
    setEditing(false);
    if (text === null || text === message.content) return;
    if (isUser) return ask(chat, message.parent, text, message.attachments ?? []);
    const { id: _id, parent, at: _at, stream: _stream, base: _base, ...fields } = message;
    tree.add(chat, parent, { ...fields, content: text });
    void save(chat);
    changed();
  }
  return (
    <article class={`message ${message.role}`} aria-label={isUser ? "You" : `Answer of ${message.model ?? "the model"}`}>
      {!isUser && <Reasoning message={message} run={run} />}
      {(message.attachments ?? []).map((a) => <details class="file" key={a.name}><summary>{a.name}</summary><pre tabIndex={0}>{a.text.slice(0, 20_000)}</pre></details>)}
      {editing ? <Editor message={message} done={edited} />
        : isUser ? <div class="asked">{message.content}</div>
        : <Markdown text={message.content} run={run} />}
      {(message.calls ?? []).map((call, i) => <CallCard key={call.id || i} chat={chat} message={message} call={call} busy={busy} />)}
      {run && <Progress run={run} />}
      {message.error && <p class="error" role="alert">{message.error}</p>}
      {!run && !isUser && <StatsLine message={message} chat={chat} />}
      {!run && !editing && (
        <div class="actions">
          <Branches chat={chat} message={message} />
          <button type="button" onClick={() => copy(message.content)}>Copy</button>
          <button type="button" disabled={busy} onClick={() => setEditing(true)}>Edit</button>
          {!isUser && <button type="button" disabled={busy} onClick={() => generate(chat, message.parent)}>Regenerate</button>}
          {!isUser && last && !message.calls?.length && message.content !== "" &&
            <button type="button" disabled={busy} onClick={() => generate(chat, message.parent, message)}>Continue</button>}
          <button type="button" disabled={busy} onClick={() => { tree.remove(chat, message.id); void save(chat); changed(); }}>Delete</button>
        </div>
      )}
    </article>
  );
}, (a, b) => a.message === b.message && a.version === b.version && a.run === b.run && a.last === b.last && a.busy === b.busy && a.branches === b.branches && a.tools === b.tools);

const kFileMax = 2 << 20;
async function readFiles(files: Iterable<File>): Promise<Attachment[]> {
  const found: Attachment[] = [];
  for (const file of files) {
    if (file.size > kFileMax) tell(`${file.name} has ${bytes(file.size)}, expected at most ${bytes(kFileMax)}`);
    else {
      const text = await file.text();
      if (text.includes("\0")) tell(`${file.name} is not text`);
      else found.push({ name: file.name, text });
    }
  }
  return found;
}

function Composer({ chat }: { chat: Chat }) {
  const [text, setText] = useState("");
  const [files, setFiles] = useState<Attachment[]>([]);
  const box = useRef<HTMLTextAreaElement>(null);
  const run = app.runs.get(chat.id);
  const isTouch = matchMedia("(pointer: coarse)").matches;
  useEffect(() => { box.current?.focus({ preventScroll: true }); }, [chat.id]);
  function submit() {
    if (run || (!text.trim() && files.length === 0)) return;
    ask(chat, chat.leaf, text, files);
    setText("");
    setFiles([]);
  }
  const attach = async (list: FileList | null | undefined) => {
    const more = await readFiles(list ?? []);
    if (more.length) setFiles((before) => [...before, ...more]);
  };
  return (
    <form class="composer" onSubmit={(e) => { e.preventDefault(); submit(); }}
      onDragOver={(e) => e.preventDefault()} onDrop={(e) => { e.preventDefault(); void attach(e.dataTransfer?.files); }}>
      {files.length > 0 && <ul class="files">{files.map((f, i) => (
        <li key={i}>{f.name} <button type="button" aria-label={`Remove ${f.name}`} onClick={() => setFiles(files.filter((one) => one !== f))}>×</button></li>))}</ul>}
      <textarea ref={box} aria-label="Message" placeholder="Message" rows={Math.min(8, text.split("\n").length + 1)} value={text}
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => { if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !isTouch) { e.preventDefault(); submit(); } }} />
      <div class="row">
        <label class="button">Attach<input type="file" multiple class="hidden" onChange={(e) => { void attach(e.currentTarget.files); e.currentTarget.value = ""; }} /></label>
        <span class="grow" />
        {run ? <button type="button" class="primary" onClick={() => stop(chat)}>Stop</button>
          : <button type="submit" class="primary" disabled={!text.trim() && files.length === 0}>Send</button>}
      </div>
    </form>
  );
}

function Thread({ chat }: { chat: Chat }) {
  const scroller = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const path = tree.pathOf(chat);
  const run = app.runs.get(chat.id);
  const last = path.at(-1);
  useLayoutEffect(() => {
    const box = scroller.current;
    if (box && sticks.current) box.scrollTop = box.scrollHeight;
  });
  useEffect(() => { sticks.current = true; }, [chat.id]);
  return (
    <div class="thread" ref={scroller} tabIndex={0} role="region" aria-label="Conversation" onClick={onCopyClick}
      onScroll={(e) => { const box = e.currentTarget; sticks.current = box.scrollHeight - box.scrollTop - box.clientHeight < 40; }}>
      {path.length === 0 && <p class="empty">Ask {app.model || "the model"} something.</p>}
      {path.map((m) => (
        <MessageView key={m.id} chat={chat} message={m} run={run?.message === m ? run : undefined} last={m === last} busy={run !== undefined}
          version={versionOf(m)} branches={tree.siblingsOf(chat, m.id).length} tools={app.tools.length} />))}
    </div>
  );
}

function download(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function importFile(file: File | undefined): Promise<void> {
  if (!file) return;
  const chats = importJson(await file.text());
  if (typeof chats === "string") return tell(`${file.name}: ${chats}`);
  await addChats(chats);
  tell(`Imported ${chats.length} chats.`);
}

export function Sidebar({ close }: { close: () => void }) {
  const shown = app.query.trim() ? app.chats.filter((c) => tree.matches(c, app.query)) : app.chats;
  return (
    <nav class="sidebar" aria-label="Chats">
      <button type="button" class="primary" onClick={() => { openChat(newChat()); close(); }}>New chat</button>
      <input type="search" aria-label="Search chats" placeholder="Search" value={app.query} onInput={(e) => { app.query = e.currentTarget.value; changed(); }} />
      <ul>
        {shown.map((c) => (
          <li key={c.id} class={c === app.current ? "current" : ""}>
            <button type="button" class="title" aria-current={c === app.current ? "page" : undefined} onClick={() => { openChat(c); close(); }}>{c.title}</button>
            <button type="button" class="delete" aria-label={`Delete ${c.title}`} onClick={() => confirm(`Delete "${c.title}"?`) && void removeChat(c)}>×</button>
          </li>))}
      </ul>
      <div class="row">
        <button type="button" onClick={() => download("moeflux-chats.json", "application/json", exportJson(app.chats))}>Export all</button>
        <label class="button">Import<input type="file" accept=".json,application/json" class="hidden" onChange={(e) => { void importFile(e.currentTarget.files?.[0]); e.currentTarget.value = ""; }} /></label>
      </div>
    </nav>
  );
}

export function ChatTab({ side, close }: { side: boolean; close: () => void }) {
  const [settings, setSettings] = useState(false);
  const chat = app.current!;
  return (
    <div class={`chat-tab ${side ? "with-side" : ""}`}>
      <Sidebar close={close} />
      <div class="main">
        <div class="bar row">
          <label>Model <select value={app.model} onChange={(e) => { app.model = e.currentTarget.value; changed(); }}>
            {app.models.map((m) => <option key={m.id} value={m.id}>{m.id}{m.state === "loading" ? ` (loading ${Math.round(100 * (m.progress ?? 0))} %)` : m.state === "failed" ? " (failed)" : m.state === "unloaded" ? " (not loaded)" : ""}</option>)}
          </select></label>
          <span class="grow" />
          <button type="button" aria-expanded={settings} onClick={() => setSettings(!settings)}>Settings</button>
          <button type="button" onClick={() => download(`${chat.title.replace(/[^\p{L}\p{N} _-]/gu, "")}.md`, "text/markdown", exportMarkdown(chat))}>Export</button>
        </div>
        {settings && <SettingsForm chat={chat} />}
        <Thread chat={chat} />
        <Composer chat={chat} />
      </div>
    </div>
  );
}
