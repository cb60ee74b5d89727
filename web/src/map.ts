// Where each expert is and when tokens chose it, kept up to date by the frames of the telemetry,
// and ten minutes of rates. Knows nothing of drawing.

export const kDrive = 0;
export const kMemory = 1;
export const kGpu = 2;
export const kTierNames = ["drive", "memory", "GPU"];

export interface Residency {
  model: string;
  experts: number;
  whole: boolean;
  layers?: { layer: number; gpu?: string; memory?: string }[];
  changed?: [number, number, number][];
}

export interface Frame {
  t: number;
  tok_s: number;
  hit: number | null;
  read_bytes: number;
  stall_s?: number;
  step_tokens: number;
  bytes?: { drive: number; bus: number };
  tiers?: { model: string; gpu: number; memory: number; drive: number } | null;
  residency?: Residency;
  used?: [number, string][];
}

export function bitsOf(base64: string | undefined): Uint8Array {
  if (!base64) return new Uint8Array();
  const text = atob(base64);
  return Uint8Array.from(text, (c) => c.charCodeAt(0));
}

export const hasBit = (bits: Uint8Array, at: number) => ((bits[at >> 3] ?? 0) >> (at & 7) & 1) === 1;

export interface Row { layer: number; tiers: Uint8Array; used: Float64Array; }

// More than any model has, so that a wrong frame cannot fill memory.
const kExpertsMax = 4096;
const kLayersMax = 1024;

export class ExpertMap {
  model = "";
  experts = 0;
  rows: Row[] = [];
  private byLayer = new Map<number, Row>();

  /** Takes a frame; `now` in milliseconds marks what it says was used. False: nothing to draw. */
  take(frame: Frame, now: number): boolean {
    const { residency, used } = frame;
    if (residency?.whole) this.begin(residency);
    for (const [layer, expert, tier] of residency?.changed ?? []) {
      const row = this.byLayer.get(layer);
      if (row && expert < this.experts) row.tiers[expert] = tier;
    }
    for (const [layer, base64] of used ?? []) {
      const row = this.byLayer.get(layer);
      if (!row) continue;
      const bits = bitsOf(base64);
      for (let e = 0; e < this.experts; ++e) if (hasBit(bits, e)) row.used[e] = now;
    }
    return residency !== undefined || used !== undefined;
  }

  private begin(residency: Residency): void {
    this.model = residency.model;
    this.experts = Math.min(Math.max(0, residency.experts), kExpertsMax);
    this.rows = (residency.layers ?? []).slice(0, kLayersMax).map(({ layer, gpu, memory }) => {
      const near = bitsOf(gpu);
      const far = bitsOf(memory);
      const tiers = new Uint8Array(this.experts);
      for (let e = 0; e < this.experts; ++e) tiers[e] = hasBit(near, e) ? kGpu : hasBit(far, e) ? kMemory : kDrive;
      return { layer, tiers, used: new Float64Array(this.experts).fill(-Infinity) };
    });
    this.byLayer = new Map(this.rows.map((row) => [row.layer, row]));
  }

  /** Experts of a row by tier, and how many of them were used since `from`. */
  counts(row: Row, from: number): { drive: number; memory: number; gpu: number; used: number } {
    const n = [0, 0, 0];
    let used = 0;
    for (let e = 0; e < this.experts; ++e) {
      ++n[row.tiers[e]];
      if (row.used[e] >= from) ++used;
    }
    return { drive: n[kDrive], memory: n[kMemory], gpu: n[kGpu], used };
  }
}

export const kHistorySeconds = 600;

/** A second of frames. Null: nothing was computed in it. */
export interface Sample { at: number; hit: number | null; gbPerSecond: number; stallMsPerToken: number | null; tokensPerSecond: number; }

export class History {
  samples: Sample[] = [];
  private last: Frame | null = null;
  private gathered = { from: 0, bytes: 0, stall: 0, tokens: 0 };

  take(frame: Frame): void {
    const before = this.last;
    this.last = frame;
    if (!before || frame.t <= before.t) {
      this.gathered = { from: frame.t, bytes: 0, stall: 0, tokens: 0 };
      return;
    }
    const g = this.gathered;
    g.bytes += frame.bytes ? frame.bytes.drive : Math.max(0, frame.read_bytes - before.read_bytes);
    g.stall += frame.stall_s ?? 0;
    g.tokens += Math.max(0, frame.step_tokens - before.step_tokens);
    const span = (frame.t - g.from) / 1000;
    if (span < 0.999) return;
    this.samples.push({
      at: frame.t, hit: g.tokens > 0 ? frame.hit : null, gbPerSecond: g.bytes / span / 1e9,
      stallMsPerToken: g.tokens > 0 ? (1000 * g.stall) / g.tokens : null, tokensPerSecond: g.tokens / span });
    while (this.samples[0].at < frame.t - 1000 * kHistorySeconds) this.samples.shift();
    this.gathered = { from: frame.t, bytes: 0, stall: 0, tokens: 0 };
  }
}
