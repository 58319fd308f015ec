/** The chosen statistic over the tokens of a rollout: where in it something happens. */
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Rollout } from "../data/types.ts";
import { number } from "../format.ts";
import { ink, runColour } from "../curves/colours.ts";
import { type Ends, padded } from "../curves/range.ts";
import { isDark } from "../theme.ts";
import { LABEL, type Mode, show, valueAt } from "./scale.ts";

const HEIGHT = 92;
const ENDS: Partial<Record<Mode, Ends>> = { logprob: [-Infinity, 0], ratio: [0, Infinity], entropy: [0, Infinity], version: [0, Infinity] };

export function Strip({ rollout, mode, choose }: { rollout: Rollout; mode: Mode; choose: (t: number) => void }) {
  const place = useRef<HTMLDivElement>(null);
  const dark = isDark();
  const count = rollout.tokens?.mask.length ?? 0;
  const values = useMemo(
    () => Array.from({ length: count }, (_, t) => valueAt(rollout, mode, t)).map((value) => (mode === "ratio" && value !== null ? Math.exp(value) : value)),
    [rollout, mode],
  );
  const some = mode !== "none" && mode !== "mask" && values.some((value) => value !== null);
  useEffect(() => {
    if (!some || !place.current) return;
    const box = place.current;
    const colour = runColour(0, dark);
    const axis = { stroke: ink(dark).axis, font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: ink(dark).grid, width: 1 } };
    const plot = new uPlot(
      {
        width: box.clientWidth,
        height: HEIGHT,
        padding: [6, 8, 0, 0],
        legend: { show: false },
        scales: { x: { time: false }, y: { range: (_, min, max) => padded(ENDS[mode] ?? [-Infinity, Infinity], min, max) } },
        axes: [{ ...axis, size: 22, gap: 4, grid: { show: false } }, { ...axis, size: 50, space: 26, values: (_, ticks) => ticks.map((tick) => number(tick, 3)) }],
        series: [{}, { stroke: colour, width: 1.2, points: { show: false }, spanGaps: false }],
        cursor: { y: false, drag: { x: true, y: false }, points: { size: 6 } },
      },
      [values.map((_, t) => t), values],
      box,
    );
    plot.over.addEventListener("click", () => {
      const t = plot.cursor.idx;
      if (t !== null && t !== undefined) choose(t);
    });
    const watcher = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
    watcher.observe(box);
    return () => {
      watcher.disconnect();
      plot.destroy();
    };
  }, [values, dark, some]);
  if (!some) return null;
  const known = values.filter((value): value is number => value !== null);
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const shownMean = mode === "ratio" ? number(mean) : show(mode, mean);
  return (
    <figure class="strip" aria-label={`${LABEL[mode]} of each token, mean ${shownMean}`}>
      <figcaption class="muted small">{LABEL[mode]} of each token · mean {shownMean} · click to go there, drag to zoom, double-click for all</figcaption>
      <div ref={place} />
    </figure>
  );
}
