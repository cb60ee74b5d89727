// The page: tabs, notes and the dialog for the key.
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { setKey } from "./api.ts";
import { ChatTab } from "./chat.tsx";
import { ExpertsTab } from "./experts.tsx";
import { ModelTab } from "./model.tsx";
import { app, changed, connect, onChange, start, type Tab } from "./state.ts";

function KeyDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  useEffect(() => { dialog.current?.showModal(); }, []);
  function done() {
    setKey(typed.trim());
    app.wantsKey = false;
    changed();
    void connect();
  }
  return (
    <dialog ref={dialog} aria-labelledby="key-title" onCancel={() => { app.wantsKey = false; changed(); }}>
      <form method="dialog" onSubmit={(e) => { e.preventDefault(); done(); }}>
        <h2 id="key-title">This server wants a key</h2>
        <label>Key<input type="password" autocomplete="off" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} /></label>
        <p class="faint">It stays in the memory of this page until the page is closed.</p>
        <button type="submit" class="primary">Use it</button>
      </form>
    </dialog>
  );
}

const kTabs: [Tab, string][] = [["chat", "Chat"], ["experts", "Experts"], ["model", "Model"]];

function App() {
  const [, redraw] = useState(0);
  const [side, setSide] = useState(false);
  useEffect(() => onChange(() => redraw((n) => n + 1)), []);
  function onKey(event: KeyboardEvent) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = kTabs.findIndex(([tab]) => tab === app.tab);
    app.tab = kTabs[(at + step + kTabs.length) % kTabs.length][0];
    changed();
    requestAnimationFrame(() => document.getElementById(`tab-${app.tab}`)?.focus());
  }
  return (
    <>
      <header class="top">
        {app.tab === "chat" && <button type="button" class="menu" aria-label="Chats" aria-expanded={side} onClick={() => setSide(!side)}>☰</button>}
        <h1>moeflux</h1>
        <div role="tablist" aria-label="Views" onKeyDown={onKey}>
          {kTabs.map(([tab, name]) => (
            <button key={tab} type="button" role="tab" id={`tab-${tab}`} aria-selected={app.tab === tab} aria-controls="view"
              tabIndex={app.tab === tab ? 0 : -1} onClick={() => { app.tab = tab; changed(); }}>{name}</button>))}
        </div>
      </header>
      <main>
        <div id="view" role="tabpanel" aria-labelledby={`tab-${app.tab}`}>
          {app.tab === "chat" && app.current && <ChatTab side={side} close={() => setSide(false)} />}
          {app.tab === "experts" && <ExpertsTab />}
          {app.tab === "model" && <ModelTab />}
        </div>
      </main>
      <div class="note" role="status">{app.note && <>{app.note} <button type="button" aria-label="Close the note" onClick={() => { app.note = ""; changed(); }}>×</button></>}</div>
      <div class="hidden" aria-live="polite">{app.said}</div>
      {app.wantsKey && <KeyDialog />}
    </>
  );
}

render(<App />, document.getElementById("app")!);
void start();
