/** A uPlot from lines: its looks, the healthy range behind it, and what it shares with its neighbours. */
import uPlot from "uplot";
import { number } from "../format.ts";
import { faint, type Ink, ink, runColour } from "./colours.ts";
import type { ChartLines, Line } from "./lines.ts";
import { type Ends, padded } from "./range.ts";

export interface PlotInput {
  chart: ChartLines;
  log: boolean;
  dark: boolean;
  low: number | null;
  high: number | null;
  ends: Ends;
  width: number;
  height: number;
  onCursor: (index: number | null) => void;
  onZoom: (range: [number, number] | null) => void;
  onDraw: (plot: uPlot) => void;
}

const FEW = 24; // series with fewer points get a marker at each
export const SYNC = "step";

function seriesOf(line: Line, dark: boolean): uPlot.Series {
  const colour = line.colour < 0 ? ink(dark).reference : runColour(line.colour, dark);
  const count = line.values.filter((value) => value !== null).length;
  const points = { show: line.look === "line" && count <= FEW, size: 5, fill: colour };
  if (line.look === "edge" || line.look === "reference-edge")
    return { label: line.label, stroke: "transparent", spanGaps: true, points: { show: false } };
  if (line.look === "raw")
    return { label: line.label, stroke: faint(colour, 0.32), width: 1, spanGaps: true, points: { show: false } };
  if (line.look === "reference")
    return { label: line.label, stroke: colour, width: 1.2, dash: [5, 4], spanGaps: true, points: { show: false } };
  return { label: line.label, stroke: colour, width: 1.8, spanGaps: true, points };
}

function shade(plot: uPlot, low: number | null, high: number | null, colour: string): void {
  if (low === null && high === null) return;
  const { top, left, width, height } = plot.bbox;
  const { min = 0, max = 1 } = plot.scales.y ?? {};
  if (min === null || max === null) return;
  const edge = (value: number | null, otherwise: number): number =>
    value === null ? otherwise : Math.min(top + height, Math.max(top, plot.valToPos(value, "y", true)));
  const [upper, lower] = [edge(high, top), edge(low, top + height)];
  plot.ctx.fillStyle = colour;
  plot.ctx.fillRect(left, upper, width, Math.max(0, lower - upper));
}

function axes(look: Ink): uPlot.Axis[] {
  const font = '11px ui-sans-serif, system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif';
  const common = { stroke: look.axis, font, ticks: { show: false }, grid: { stroke: look.grid, width: 1 } };
  return [
    { ...common, grid: { show: false }, size: 26, gap: 6, space: 44, incrs: [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000] },
    { ...common, size: roomFor, gap: 6, space: 34, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : number(tick, 3))) },
  ];
}

/** The width of the longest label. */
const roomFor = (_: uPlot, labels: string[] | null): number => Math.max(34, 14 + 6.6 * Math.max(0, ...(labels ?? []).map((label) => label.length)));

export function plotOptions(input: PlotInput): uPlot.Options {
  const { chart, dark } = input;
  const look = ink(dark);
  return {
    width: input.width,
    height: input.height,
    padding: [8, Math.max(8, 4 * String(chart.steps.at(-1) ?? 0).length), 0, 0],
    legend: { show: false },
    scales: { x: { time: false }, y: input.log ? { distr: 3 } : { range: (_, min, max) => padded(input.ends, min, max) } },
    axes: axes(look),
    series: [{}, ...chart.lines.map((line) => seriesOf(line, dark))],
    bands: chart.fills.map(([top, bottom]) => {
      const colour = chart.lines[top]?.colour ?? -1;
      return { series: [top + 1, bottom + 1], fill: faint(colour < 0 ? look.reference : runColour(colour, dark), 0.16) };
    }),
    cursor: {
      y: false,
      sync: { key: SYNC, scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      points: { size: 7 },
      bind: { dblclick: () => () => (input.onZoom(null), null) },
    },
    hooks: {
      drawClear: [(plot) => shade(plot, input.low, input.high, look.healthy)],
      draw: [input.onDraw],
      setCursor: [(plot) => input.onCursor(plot.cursor.left !== undefined && plot.cursor.left >= 0 ? (plot.cursor.idx ?? null) : null)],
      setSelect: [(plot) => selected(plot, input.onZoom)],
    },
  };
}

function selected(plot: uPlot, zoom: PlotInput["onZoom"]): void {
  const { left, width } = plot.select;
  if (width < 4) return;
  zoom([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}
