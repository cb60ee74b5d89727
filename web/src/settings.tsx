// What a chat's requests say beside its messages. An empty field leaves the server its default.
import { app, changed, save } from "./state.ts";
import type { Chat, Settings } from "./tree.ts";

const kNumbers = [
  ["temperature", "Temperature", 0, 5, 0.05], ["top_p", "Top p", 0, 1, 0.01], ["top_k", "Top k", 0, 1000, 1],
  ["min_p", "Min p", 0, 1, 0.01], ["repeat_penalty", "Repeat penalty", 0, 2, 0.01],
  ["max_tokens", "Most tokens", 1, 1_000_000, 1], ["seed", "Seed", 0, 2 ** 32, 1],
] as const;

export function SettingsForm({ chat }: { chat: Chat }) {
  const { settings } = chat;
  function set<K extends keyof Settings>(name: K, value: Settings[K]) {
    if (value === undefined || value === "") delete settings[name];
    else settings[name] = value;
    if (app.chats.includes(chat)) void save(chat);
    changed();
  }
  let wrong = "";
  try {
    if (settings.schema?.trim()) JSON.parse(settings.schema);
  } catch (error) {
    wrong = (error as Error).message;
  }
  return (
    <form class="settings" aria-label="Settings of this chat" onSubmit={(e) => e.preventDefault()}>
      <label class="wide">System prompt<textarea rows={2} value={settings.system ?? ""} onInput={(e) => set("system", e.currentTarget.value)} /></label>
      {kNumbers.map(([name, label, min, max, step]) => (
        <label key={name}>{label}<input type="number" min={min} max={max} step={step} value={settings[name] ?? ""}
          onInput={(e) => set(name, e.currentTarget.value === "" ? undefined : Number(e.currentTarget.value))} /></label>))}
      <label>Reasoning effort<select value={settings.reasoning_effort ?? ""} onChange={(e) => set("reasoning_effort", e.currentTarget.value)}>
        <option value="">default</option>{["none", "low", "medium", "high"].map((one) => <option key={one}>{one}</option>)}</select></label>
      <label class="wide">JSON schema of answers<textarea rows={2} spellcheck={false} value={settings.schema ?? ""} aria-invalid={wrong !== ""} onInput={(e) => set("schema", e.currentTarget.value)} /></label>
      {wrong && <p class="error" role="alert">{wrong}</p>}
      {app.tools.length > 0 && (
        <fieldset class="wide"><legend>Tools</legend>
          <label class="check"><input type="checkbox" checked={settings.tools ?? false} onChange={(e) => set("tools", e.currentTarget.checked || undefined)} /> Offer the server's tools</label>
          <ul>{app.tools.map((t) => <li key={t.name}><b>{t.name}</b> <span class="faint">{t.server}</span> {t.description.slice(0, 300)}</li>)}</ul>
        </fieldset>)}
    </form>
  );
}
