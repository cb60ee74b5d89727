// The cache made visible: where experts are, what tokens chose and what they waited for.
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "./api.ts";
import { Chart } from "./chart.tsx";
import { bytes, seconds } from "./format.ts";
import { ExpertMap, History, kHistorySeconds, kTierNames, type Frame } from "./map.ts";
import { app, changed, tell } from "./state.ts";
import type { Message } from "./tree.ts";

const map = new ExpertMap();
const history = new History();
let frame: Frame | null = null;
let problem = "";
let isWatching = false;
const kRecentMs = 3000;

/** Follows the telemetry from the first look on, so that a question asked meanwhile is seen. */
function watch(): void {
  if (isWatching) return;
  isWatching = true;
  api.follow<Frame>("/v1/moeflux/telemetry", new AbortController().signal, (next) => {
    frame = next;
    map.take(next, performance.now());
    history.take(next);
    if (app.tab === "experts") changed();
  }, (error) => {
    problem = error.message;
    isWatching = false;
    changed();
  });
}

interface Uses { layers: { layer: number; expert_bytes: number; uses: number[] | null }[]; }
let uses: Uses | null = null;
let usesAt = -Infinity;
function refreshUses(): void {
  if (!app.features?.residency || performance.now() - usesAt < 1000) return;
  usesAt = performance.now();
  api.get<Uses>("/v1/moeflux/experts").then((found) => { uses = found; changed(); }, () => undefined);
}

interface TokenRoute { position: number; layers: { layer: number; experts: number[]; weights: number[]; missed: number[] }[]; read_bytes: number; bus_bytes: number; stall_us: number; step_us: number; }
interface Routes { id: string; layers: number[]; tokens: { position: number; read_bytes: number; bus_bytes: number; stall_us: number; step_us: number; misses: number }[]; dropped: number; }

function HeatMap({ route }: { route: TokenRoute | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [at, setAt] = useState<[number, number] | null>(null);
  const rowHeight = map.rows.length > 40 ? 7 : 12;
  useEffect(() => {
    const box = canvas.current;
    const draw = box?.getContext("2d");
    if (!box || !draw || map.experts === 0) return;
    const scale = devicePixelRatio;
    const width = box.clientWidth;
    box.width = Math.round(width * scale);
    box.height = Math.round(map.rows.length * rowHeight * scale);
    const style = getComputedStyle(box);
    const colours = ["--drive", "--memory", "--gpu"].map((name) => style.getPropertyValue(name));
    const used = style.getPropertyValue("--used");
    const cell = box.width / map.experts;
    const height = rowHeight * scale;
    const gap = cell > 4 ? scale : 0;
    const now = performance.now();
    const routed = new Map(route?.layers.map((one) => [one.layer, new Set(one.experts)]) ?? []);
    map.rows.forEach((row, r) => {
      for (let e = 0; e < map.experts; ++e) {
        draw.fillStyle = colours[row.tiers[e]];
        draw.fillRect(e * cell, r * height, Math.max(1, cell - gap), height - scale);
        const isUsed = route ? routed.get(row.layer)?.has(e) : now - row.used[e] < kRecentMs;
        if (!isUsed) continue;
        draw.fillStyle = used;
        draw.fillRect(e * cell, r * height + height / 4, Math.max(1, cell - gap), height / 2);
      }
    });
    if (at) {
      draw.strokeStyle = style.color;
      draw.lineWidth = 2 * scale;
      draw.strokeRect(at[1] * cell, at[0] * height, Math.max(3, cell), height);
    }
  });
  function point(event: MouseEvent) {
    const box = canvas.current!;
    const row = Math.floor(event.offsetY / rowHeight);
    const expert = Math.floor((event.offsetX / box.clientWidth) * map.experts);
    if (map.rows[row] && expert >= 0 && expert < map.experts) setAt([row, expert]);
    refreshUses();
  }
  function onKey(event: KeyboardEvent) {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move) return;
    event.preventDefault();
    const [r, e] = at ?? [0, 0];
    setAt([Math.min(map.rows.length - 1, Math.max(0, r + move[0])), Math.min(map.experts - 1, Math.max(0, e + move[1]))]);
    refreshUses();
  }
  let told = "Point at an expert, or move by arrow keys.";
  const row = at && map.rows[at[0]];
  if (at && row) {
    const known = uses?.layers.find((one) => one.layer === row.layer);
    const count = known?.uses?.[at[1]];
    told = `Layer ${row.layer}, expert ${at[1]}: ${kTierNames[row.tiers[at[1]]]}` +
      `${known ? `, ${bytes(known.expert_bytes)}` : ""}${count !== undefined ? `, used ${count} times` : ""}` +
      `${performance.now() - row.used[at[1]] < kRecentMs ? ", used just now" : ""}`;
  }
  return (
    <>
      <canvas ref={canvas} class="map" height={map.rows.length * rowHeight} tabIndex={0} role="application"
        aria-label={`Map of ${map.rows.length} layers by ${map.experts} experts; a table follows`} aria-describedby="map-told"
        onMouseMove={point} onKeyDown={onKey} />
      <p id="map-told" role="status">{told}</p>
    </>
  );
}

function Legend() {
  return (
    <ul class="legend">
      <li><span class="box gpu" />GPU</li><li><span class="box memory" />memory</li><li><span class="box drive" />drive</li>
      <li><span class="box used" />chosen in the last {kRecentMs / 1000} s, or by the token below</li>
    </ul>
  );
}

function MapTable() {
  const from = performance.now() - kRecentMs;
  return (
    <details>
      <summary>The map as a table</summary>
      <div class="table" tabIndex={0} role="group" aria-label="Experts by layer">
        <table><thead><tr><th>Layer</th><th>GPU</th><th>Memory</th><th>Drive</th><th>Chosen just now</th></tr></thead>
          <tbody>{map.rows.map((row) => {
            const n = map.counts(row, from);
            return <tr key={row.layer}><th scope="row">{row.layer}</th><td>{n.gpu}</td><td>{n.memory}</td><td>{n.drive}</td><td>{n.used}</td></tr>;
          })}</tbody></table>
      </div>
    </details>
  );
}

function Charts() {
  const { samples } = history;
  const end = samples.at(-1)?.at ?? 0;
  const x: [number, number] = [end - 1000 * kHistorySeconds, end];
  const last = samples.at(-1);
  const line = (of: (s: (typeof samples)[0]) => number | null) => [{ name: "line", points: samples.map((s) => [s.at, of(s)] as [number, number | null]) }];
  const percent = (y: number | null | undefined) => (y === null || y === undefined ? "nothing computed" : `${(100 * y).toFixed(0)} %`);
  return (
    <div class="charts">
      <Chart title="Hit rate" told={percent(last?.hit)} x={x} yMax={1} yLabel={percent} lines={line((s) => s.hit)} />
      <Chart title="Reads of the drive" told={`${(last?.gbPerSecond ?? 0).toFixed(2)} GB/s`} x={x} yLabel={(y) => `${y.toPrecision(2)} GB/s`} lines={line((s) => s.gbPerSecond)} />
      <Chart title="Waited for each token" told={last?.stallMsPerToken == null ? "nothing computed" : `${last.stallMsPerToken.toFixed(1)} ms`} x={x} yLabel={(y) => `${y.toPrecision(2)} ms`} lines={line((s) => s.stallMsPerToken)} />
      <Chart title="Tokens a second" told={`${(last?.tokensPerSecond ?? 0).toFixed(1)}`} x={x} yLabel={(y) => y.toPrecision(2)} lines={line((s) => s.tokensPerSecond)} />
    </div>
  );
}

/** The pieces of an answer's text, where they are as many as its tokens. */
async function piecesOf(message: Message, count: number): Promise<string[] | null> {
  interface Piece { piece: string; }
  const text = (message.reasoning ?? "") + message.content;
  const { tokens } = await api.post<{ tokens: Piece[] }>("/tokenize", { content: text, with_pieces: true, model: message.model });
  // The one that ended the text is none of its pieces.
  return Math.abs(tokens.length - count) <= 1 ? tokens.map((t) => t.piece) : null;
}

function RoutesView({ message, choose, chosen }: { message: Message; choose: (route: TokenRoute | null) => void; chosen: TokenRoute | null }) {
  const [routes, setRoutes] = useState<Routes | null>(null);
  const [pieces, setPieces] = useState<string[] | null>(null);
  const [wrong, setWrong] = useState("");
  const [at, setAt] = useState(-1);
  const path = `/v1/moeflux/routes/${encodeURIComponent(message.stats?.routes ?? "")}`;
  useEffect(() => {
    setRoutes(null);
    setWrong("");
    choose(null);
    api.get<Routes>(path).then((found) => {
      setRoutes(found);
      void piecesOf(message, found.tokens.length).then(setPieces, () => setPieces(null));
    }, (error) => setWrong(error.message));
  }, [path]);
  function open(i: number) {
    setAt(i);
    api.get<TokenRoute>(`${path}?token=${i}`).then(choose, (error) => setWrong(error.message));
  }
  const stall = Math.max(1, ...(routes?.tokens ?? []).map((t) => t.stall_us));
  return (
    <section aria-labelledby="routes-title">
      <h2 id="routes-title">Routes of an answer</h2>
      {wrong && <p class="error" role="alert">{wrong}</p>}
      {routes && <p class="faint">{routes.tokens.length} tokens through the experts of {routes.layers.length} layers. The thicker the frame of a token, the longer it waited.{routes.dropped > 0 && ` ${routes.dropped} tokens were not kept.`}</p>}
      <div class="tokens">
        {routes?.tokens.slice(0, 4000).map((t, i) => (
          <button key={i} type="button" class={`token wait-${Math.round((4 * t.stall_us) / stall)}`} aria-pressed={i === at}
            aria-label={`Token ${i + 1}, ${pieces?.[i] ?? ""}: waited ${seconds(t.stall_us / 1000)}`} onClick={() => open(i)}>{pieces?.[i]?.replace(/\n/g, "↵") ?? i + 1}</button>))}
      </div>
      {chosen && (
        <>
          <p>Position {chosen.position}: {bytes(chosen.read_bytes)} read from the drive, {bytes(chosen.bus_bytes)} over the bus, waited {seconds(chosen.stall_us / 1000)} of {seconds(chosen.step_us / 1000)}</p>
          <div class="table" tabIndex={0} role="group" aria-label="Experts of the token">
            <table><thead><tr><th>Layer</th><th>Experts, weights</th><th>Read for it</th></tr></thead>
              <tbody>{chosen.layers.map((l) => (
                <tr key={l.layer}><th scope="row">{l.layer}</th><td>{l.experts.map((e, i) => `${e} (${l.weights[i]?.toFixed(2) ?? "?"})`).join(", ")}</td><td>{l.missed.join(", ") || "none"}</td></tr>))}</tbody></table>
          </div>
        </>)}
    </section>
  );
}

interface TraceState { recording: boolean; bytes: number; seconds: number; full: boolean; available: boolean; }
interface Replay { slot_bytes: number; points: { slots: number; bytes: number; share: number; hit_rate: number; optimum_hit_rate: number }[]; tokens: number; }

function Trace() {
  const [state, setState] = useState<TraceState | null>(null);
  const [replay, setReplay] = useState<Replay | null>(null);
  const [busy, setBusy] = useState(false);
  const path = "/v1/moeflux/trace";
  const refresh = () => api.get<TraceState>(path).then(setState, () => setState(null));
  useEffect(() => { void refresh(); }, []);
  useEffect(() => {
    if (!state?.recording) return;
    const timer = setInterval(refresh, 1000);
    return () => clearInterval(timer);
  }, [state?.recording]);
  async function act(use: () => Promise<unknown>) {
    setBusy(true);
    await use().catch((error) => tell(error.message));
    setBusy(false);
    void refresh();
  }
  const save = async () => {
    const text = await (await api.send("GET", `${path}/csv`)).blob();
    const link = document.createElement("a");
    link.href = URL.createObjectURL(text);
    link.download = "routes.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  if (!state) return null;
  const told = state.recording || state.bytes > 0 ? `${bytes(state.bytes)}, ${seconds(1000 * state.seconds)}${state.full ? ", full" : ""}` : "nothing recorded";
  const last = replay?.points.at(-1);
  return (
    <section aria-labelledby="trace-title">
      <h2 id="trace-title">Hit rate against cache size</h2>
      <p class="faint">A recording of what all requests choose, replayed with caches of other sizes as by moeflux replay.</p>
      <div class="row">
        {state.recording ? <button type="button" disabled={busy} onClick={() => void act(() => api.send("DELETE", path))}>Stop recording</button>
          : <button type="button" disabled={busy} onClick={() => { setReplay(null); void act(() => api.post(path, {})); }}>Record routes</button>}
        <button type="button" disabled={busy || state.recording || !state.available} onClick={() => void act(async () => setReplay(await api.get<Replay>(`${path}/replay?points=8`)))}>Plot</button>
        <button type="button" disabled={busy || state.recording || !state.available} onClick={() => void act(save)}>Save as CSV</button>
        <span role="status">{told}</span>
      </div>
      {replay && last && (
        <>
          <Chart title="Hit rate" told={`${(100 * last.hit_rate).toFixed(0)} % with ${bytes(last.bytes)}`} yMax={1} yLabel={(y) => `${(100 * y).toFixed(0)} %`} lines={[
            { name: "cache", points: replay.points.map((p) => [p.share, p.hit_rate]) },
            { name: "optimum", points: replay.points.map((p) => [p.share, p.optimum_hit_rate]), dashed: true }]} />
          <div class="table" tabIndex={0} role="group" aria-label="Hit rates by cache size"><table><thead><tr><th>Cache</th><th>Share of experts</th><th>Hit rate</th><th>Optimum</th></tr></thead>
            <tbody>{replay.points.map((p) => <tr key={p.slots}><th scope="row">{bytes(p.bytes)}</th><td>{(100 * p.share).toFixed(0)} %</td><td>{(100 * p.hit_rate).toFixed(1)} %</td><td>{(100 * p.optimum_hit_rate).toFixed(1)} %</td></tr>)}</tbody></table></div>
        </>)}
    </section>
  );
}

export function ExpertsTab() {
  const [route, setRoute] = useState<TokenRoute | null>(null);
  useEffect(watch, []);
  const tiers = frame?.tiers;
  return (
    <div class="page">
      {problem && <p class="error" role="alert">{problem}</p>}
      <section aria-labelledby="map-title">
        <h2 id="map-title">Experts{tiers && ` of ${tiers.model}`}</h2>
        {tiers ? <p>{tiers.gpu} on the GPU, {tiers.memory} in memory, {tiers.drive} on the drive alone</p> : <p class="faint">No model with experts is loaded.</p>}
        {map.rows.length > 0 ? <><Legend /><HeatMap route={route} /><MapTable /></>
          : tiers && app.features && !app.features.residency && <p class="faint">The map is for an admin key, as several keys use this server.</p>}
      </section>
      <Charts />
      {app.openRoutes && <RoutesView message={app.openRoutes.message} choose={setRoute} chosen={route} />}
      {app.features?.admin && <Trace />}
    </div>
  );
}
