// What runs here and with what: the model, memory, options, commands for other programs, the log,
// and a forecast for another machine.
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api.ts";
import { copy } from "./chat.tsx";
import { bytes } from "./format.ts";
import { snippets } from "./snippets.ts";
import { app } from "./state.ts";

interface ModelCard {
  name: string; family: string; layers: number; hidden_size: number; vocab_size: number;
  experts: number; experts_per_token: number; context_length: number; parameters: number;
  formats: { format: string; expert_bytes: number }[]; dense_bytes: number; experts_bytes: number; template: Record<string, unknown> | null; output_format?: string;
}
type Plan = Record<string, unknown> & { on_device?: Record<string, number> };

/** What was asked for, or why it is not there. Asked again when the model changes. */
function useAnswer<T>(path: string | null): [T | null, string] {
  const [value, setValue] = useState<T | null>(null);
  const [wrong, setWrong] = useState("");
  useEffect(() => {
    setValue(null);
    setWrong("");
    if (!path) return;
    let isLeft = false;
    api.get<T>(path).then((found) => isLeft || setValue(found), (error) => isLeft || setWrong(error.message));
    return () => { isLeft = true; };
  }, [path]);
  return [value, wrong];
}

function Card({ card }: { card: ModelCard }) {
  const rows: [string, string | number][] = [
    ["Family", card.family], ["Parameters", `${(card.parameters / 1e9).toPrecision(3)} billion`], ["Layers", card.layers], ["Hidden size", card.hidden_size],
    ["Vocabulary", card.vocab_size], ["Experts", `${card.experts}, ${card.experts_per_token} for each token`], ["Context", `${card.context_length} tokens`],
    ["Weights", `${bytes(card.dense_bytes)} dense, ${bytes(card.experts_bytes)} in experts`], ["Output format", card.output_format ?? "plain"]];
  return (
    <>
      <dl class="facts">{rows.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      <div class="table" tabIndex={0} role="group" aria-label="Formats of experts"><table><thead><tr><th>Format of experts</th><th>Size of one</th></tr></thead>
        <tbody>{card.formats.map((f) => <tr key={f.format}><th scope="row">{f.format}</th><td>{bytes(f.expert_bytes)}</td></tr>)}</tbody></table></div>
      {card.template && <p>The chat template can: {Object.entries(card.template).filter(([, can]) => can === true || (Array.isArray(can) && can.length > 0)).map(([name]) => name.replace(/_/g, " ")).join(", ") || "messages alone"}</p>}
    </>
  );
}

const kParts: [string, string][] = [
  ["dense_bytes", "dense weights"], ["expert_cache_bytes", "expert cache"], ["state_bytes", "KV cache"], ["scratch_bytes", "scratch"],
  ["reader_bytes", "reads"], ["listed_key_bytes", "listed keys"], ["table_rows_bytes", "rows of tables"], ["reserve_bytes", "reserve"]];

/** Parts of the host's memory, those that are not zero. */
function PlanBar({ plan }: { plan: Plan }) {
  const size = (name: string) => (typeof plan[name] === "number" ? (plan[name] as number) : 0);
  const parts = kParts.map(([name, label]) => ({ name, label, size: size(name) })).filter((p) => p.size > 0);
  const used = parts.reduce((sum, p) => sum + p.size, 0);
  const free = Math.max(0, size("available_bytes") - used);
  if (free > 0) parts.push({ name: "free", label: "free", size: free });
  let from = 0;
  const device = Object.entries(plan.on_device ?? {}).filter(([, n]) => n > 0);
  return (
    <>
      <svg class="plan" viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" aria-label={`Memory: ${parts.map((p) => `${p.label} ${bytes(p.size)}`).join(", ")}`}>
        {parts.map((p) => {
          const width = (1000 * p.size) / (used + free);
          const x = from;
          from += width;
          return <rect key={p.name} class={`part-${p.name}`} x={x} y={0} width={width} height={40} />;
        })}
      </svg>
      <ul class="legend">{parts.map((p) => <li key={p.name}><span class={`box part-${p.name}`} />{p.label} {bytes(p.size)}</li>)}</ul>
      {device.length > 0 && <p>On the GPU: {device.map(([name, n]) => `${name.replace(/_bytes$/, "").replace(/_/g, " ")} ${bytes(n)}`).join(", ")}</p>}
      <p class="faint">{String(plan.device ?? "")}</p>
    </>
  );
}

function Snippets() {
  const all = snippets(location.origin, app.model || "any", api.hasKey());
  const [shown, setShown] = useState(all[0].name);
  const one = all.find((s) => s.name === shown)!;
  return (
    <section aria-labelledby="clients-title">
      <h2 id="clients-title">Clients</h2>
      <label>Client <select value={shown} onChange={(e) => setShown(e.currentTarget.value)}>{all.map((s) => <option key={s.name}>{s.name}</option>)}</select></label>
      <div class="code"><div class="code-head"><span>{one.language}</span><button type="button" onClick={() => copy(one.text)}>Copy</button></div><pre tabIndex={0}><code>{one.text}</code></pre></div>
    </section>
  );
}

const kLinesMax = 500;
function Log() {
  const [lines, setLines] = useState<string[]>([]);
  const [wrong, setWrong] = useState("");
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const end = new AbortController();
    let last = -1;
    api.follow<{ n: number; t: number; line: string }>("/v1/moeflux/log", end.signal, ({ n, line }) => {
      if (n <= last) return;  // said again after a broken connection
      last = n;
      setLines((before) => [...before.slice(1 - kLinesMax), line.slice(0, 2000)]);
    }, (error) => setWrong(error.message));
    return () => end.abort();
  }, []);
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines]);
  return (
    <section aria-labelledby="log-title">
      <h2 id="log-title">Log</h2>
      {wrong ? <p class="error">{wrong}</p> : <pre ref={box} class="log" tabIndex={0} role="log" aria-labelledby="log-title">{lines.join("\n")}</pre>}
    </section>
  );
}

interface Speed { tokens_per_second: number; hit_rate?: number; limit: string; read_bytes_per_token?: number; }
interface Forecast { memory: { expert_cache_bytes: number; experts_bytes: number; fits: boolean }; decode: { uniform: Speed; natural_low: Speed; natural_high: Speed }; prompt: { cold: Speed; warm: Speed }; }
const kMachine = [["ram", "Memory, GiB", "16"], ["ram_gb_s", "Memory, GB/s", "40"], ["drive_gb_s", "Drive, GB/s", "3"], ["vram", "GPU memory, GiB", ""],
  ["vram_gb_s", "GPU memory, GB/s", ""], ["pcie_gb_s", "Bus, GB/s", ""], ["ctx_size", "Context, tokens", ""]] as const;

function Planner() {
  const [names] = useAnswer<{ like: string[] }>("/v1/moeflux/forecast");
  const [fields, setFields] = useState<Record<string, string>>(Object.fromEntries(kMachine.map(([name, , value]) => [name, value])));
  const [found, setFound] = useState<Forecast | null>(null);
  const [wrong, setWrong] = useState("");
  if (!names) return null;
  async function submit() {
    const body: Record<string, unknown> = {};
    if (fields.like) body.like = fields.like;
    if (fields.type) body.type = fields.type;
    for (const [name] of kMachine) {
      if (!fields[name]) continue;
      const value = Number(fields[name]);
      if (name === "ram" || name === "vram") body[`${name}_bytes`] = Math.round(value * 2 ** 30);
      else body[name] = value;
    }
    setFound(null);
    setWrong("");
    await api.post<Forecast>("/v1/moeflux/forecast", body).then(setFound, (error) => setWrong(error.message));
  }
  const set = (name: string) => (e: { currentTarget: { value: string } }) => setFields({ ...fields, [name]: e.currentTarget.value });
  const row = (name: string, s: Speed) => <tr><th scope="row">{name}</th><td>{s.tokens_per_second.toFixed(1)}</td><td>{s.hit_rate === undefined ? "" : `${(100 * s.hit_rate).toFixed(0)} %`}</td><td>{s.limit}</td></tr>;
  return (
    <section aria-labelledby="planner-title">
      <h2 id="planner-title">How fast would it be elsewhere?</h2>
      <form class="settings" aria-labelledby="planner-title" onSubmit={(e) => { e.preventDefault(); void submit(); }}>
        <label>Model<select value={fields.like ?? ""} onChange={set("like")}><option value="">the loaded one</option>{names.like.map((n) => <option key={n}>{n}</option>)}</select></label>
        <label>Type of weights<input placeholder="as published" value={fields.type ?? ""} onInput={set("type")} /></label>
        {kMachine.map(([name, label]) => <label key={name}>{label}<input type="number" min={0} step="any" value={fields[name]} onInput={set(name)} /></label>)}
        <button type="submit" class="primary">Forecast</button>
      </form>
      {wrong && <p class="error" role="alert">{wrong}</p>}
      {found && (
        <div role="status">
          <p>{found.memory.fits ? `Experts in memory: ${bytes(found.memory.expert_cache_bytes)} of ${bytes(found.memory.experts_bytes)}` : "It does not fit."}</p>
          <div class="table" tabIndex={0} role="group" aria-label="Forecast"><table><thead><tr><th>What</th><th>Tokens/s</th><th>Hits</th><th>Bound by</th></tr></thead><tbody>
            {row("Answers, usual text, low", found.decode.natural_low)}{row("Answers, usual text, high", found.decode.natural_high)}{row("Answers, experts at random", found.decode.uniform)}
            {row("Prompts, first", found.prompt.cold)}{row("Prompts, later", found.prompt.warm)}</tbody></table></div>
        </div>)}
    </section>
  );
}

export function ModelTab() {
  const of = app.model ? `?model=${encodeURIComponent(app.model)}` : "";
  const state = app.models.find((m) => m.id === app.model)?.state;
  const loaded = state === "loaded" ? of : null;
  const [card, noCard] = useAnswer<ModelCard>(loaded && `/v1/moeflux/model${loaded}`);
  const [plan, noPlan] = useAnswer<Plan>(loaded && app.features?.admin !== false ? `/v1/moeflux/plan${loaded}` : null);
  const admin = app.features?.admin ?? false;
  const [options] = useAnswer<{ options: { name: string; value: string; given: boolean }[] }>(admin ? "/v1/moeflux/options" : null);
  return (
    <div class="page">
      <section aria-labelledby="model-title">
        <h2 id="model-title">{app.model || "No model"}</h2>
        {loaded === null && <p>The model is {state ?? "not"} here; a question loads it.</p>}
        {noCard && <p class="error">{noCard}</p>}
        {card && card.layers !== undefined && <Card card={card} />}
      </section>
      {(plan || noPlan) && (
        <section aria-labelledby="plan-title"><h2 id="plan-title">Memory</h2>{noPlan ? <p class="error">{noPlan}</p> : plan && <PlanBar plan={plan} />}</section>)}
      <Snippets />
      <Planner />
      {options && (
        <section aria-labelledby="options-title"><h2 id="options-title">Options</h2>
          <div class="table" tabIndex={0} role="group" aria-label="Options in force"><table><thead><tr><th>Option</th><th>Value</th><th>From</th></tr></thead>
            <tbody>{options.options.map((o) => <tr key={o.name}><th scope="row"><code>{o.name}</code></th><td>{o.value}</td><td>{o.given ? "given" : "default"}</td></tr>)}</tbody></table></div>
        </section>)}
      {admin && <Log />}
      {app.features && !admin && <p class="faint">Memory, options and the log are for an admin key.</p>}
    </div>
  );
}
