// A line over time, or over anything, as a picture with a sentence that says the same.

export interface Line { name: string; points: [number, number | null][]; dashed?: boolean; }

const kWidth = 300;
const kHeight = 80;

/** `x` and `y` are the ends of the axes; without them those of the points. */
export function Chart({ title, told, lines, x, yMax, yLabel }: {
  title: string; told: string; lines: Line[]; x?: [number, number]; yMax?: number; yLabel: (y: number) => string;
}) {
  const all = lines.flatMap((line) => line.points);
  const xs = all.map(([at]) => at);
  const [from, to] = x ?? [Math.min(...xs, 0), Math.max(...xs, 1)];
  const top = yMax ?? Math.max(1e-9, ...all.map(([, y]) => y ?? 0));
  const place = (at: number, y: number) =>
    `${(((at - from) / Math.max(1e-9, to - from)) * kWidth).toFixed(1)} ${(kHeight - Math.min(1, y / top) * kHeight).toFixed(1)}`;
  function path(points: Line["points"]): string {
    let drawn = "";
    let pen = false;
    for (const [at, y] of points) {
      if (y !== null) drawn += `${pen ? "L" : "M"}${place(at, y)}`;
      pen = y !== null;
    }
    return drawn;
  }
  return (
    <figure class="chart">
      <figcaption><b>{title}</b> <span class="faint">{told}</span></figcaption>
      <div class="plot">
        <svg viewBox={`0 0 ${kWidth} ${kHeight}`} preserveAspectRatio="none" role="img" aria-label={`${title}: ${told}`}>
          <path class="grid" d={`M0 0H${kWidth}M0 ${kHeight / 2}H${kWidth}M0 ${kHeight}H${kWidth}`} />
          {lines.map((line) => <path key={line.name} class={line.dashed ? "dashed" : "solid"} d={path(line.points)} />)}
        </svg>
        <span class="top-label faint">{yLabel(top)}</span>
      </div>
    </figure>
  );
}
