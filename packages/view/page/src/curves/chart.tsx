/** A chart with its meaning, its values at the cursor, and the alarms that were raised at its steps. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { number, plural } from "../format.ts";
import { isDark } from "../theme.ts";
import { link } from "../route.ts";
import { meaningOf } from "../data/store.ts";
import type { Alarm } from "../data/types.ts";
import { runColour } from "./colours.ts";
import { chartLines, type ChartLines, lastOf, lastPlace, type RunSeries, type Settings, shownPlace } from "./lines.ts";
import { possible } from "./range.ts";
import { plotOptions } from "./plot.ts";

export type Zoom = [number, number] | null;

interface Props {
  name: string;
  runs: RunSeries[];
  settings: Settings;
  marks: { run: string; alarm: Alarm }[];
  zoom: Zoom;
  onZoom: (zoom: Zoom) => void;
  remove: () => void;
}

const HEIGHT = 208;

export function Chart(props: Props) {
  const { name, runs, settings, marks } = props;
  const metric = meaningOf(name);
  const chart = useMemo(() => chartLines(name, runs, settings), [name, runs, settings]);
  const [index, setIndex] = useState<number | null>(null);
  const unit = metric && !["its own", "1"].includes(metric.unit) ? metric.unit : "";
  return (
    <article class="chart" aria-label={`Chart of ${name}`}>
      <header class="chart-head">
        <h3><code>{name}</code>{unit && <span class="muted"> {unit}</span>}</h3>
        <button type="button" class="quiet" onClick={props.remove} title="Take this chart away" aria-label={`Remove the chart of ${name}`}>×</button>
      </header>
      {metric?.meaning && (
        <p class="chart-meaning">
          {metric.meaning}
          {metric.healthy && <span class="healthy">healthy: {metric.healthy}</span>}
        </p>
      )}
      {chart.steps.length ? (
        <Plot {...props} chart={chart} index={index} setIndex={setIndex} marks={marks} />
      ) : (
        <p class="chart-empty muted">None of the chosen runs has written this yet.</p>
      )}
      <Values chart={chart} index={index} />
      {chart.leftOut > 0 && <p class="muted small">{plural(chart.leftOut, "value")} of 0 or less cannot be shown on a log scale.</p>}
    </article>
  );
}

type PlotProps = Props & { chart: ChartLines; index: number | null; setIndex: (index: number | null) => void };

function Plot({ name, chart, settings, marks, zoom, onZoom, index, setIndex }: PlotProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [width, setWidth] = useState(0);
  const [spots, setSpots] = useState<number[]>([]);
  const dark = isDark();
  const metric = meaningOf(name);
  const draw = useRef<(drawn: uPlot) => void>(() => {});
  draw.current = (drawn) => {
    const next = marks.map(({ alarm }) => Math.round(drawn.valToPos(alarm.step, "x") + drawn.over.offsetLeft));
    if (next.join() !== spots.join()) setSpots(next);
  };

  useLayoutEffect(() => {
    const box = place.current as HTMLDivElement;
    const watcher = new ResizeObserver(() => setWidth(Math.floor(box.clientWidth)));
    watcher.observe(box);
    setWidth(Math.floor(box.clientWidth));
    return () => watcher.disconnect();
  }, []);

  const data = [chart.steps, ...chart.lines.map((line) => line.values)] as uPlot.AlignedData;
  // The chart is made anew if its looks change; new points alone are put into the one that there is.
  const ends = possible(metric, chart.lines.filter(({ look }) => !look.endsWith("edge")).flatMap(({ values }) => values));
  const looks = JSON.stringify([ends, chart.lines.map(({ label, look, colour }) => [label, look, colour]), chart.fills, settings.log, dark]);
  const made = useRef("");
  useEffect(() => {
    if (!width || !place.current) return;
    if (plot.current && made.current === looks) {
      plot.current.setSize({ width, height: HEIGHT });
      plot.current.setData(data, false);
    } else {
      plot.current?.destroy();
      const range = { low: metric?.low ?? null, high: metric?.high ?? null, ends };
      const options = { chart, dark, log: settings.log, width, height: HEIGHT, ...range };
      const calls = { onCursor: setIndex, onZoom, onDraw: (drawn: uPlot) => draw.current(drawn) };
      plot.current = new uPlot(plotOptions({ ...options, ...calls }), data, place.current);
      made.current = looks;
    }
    const [first = 0, last = 1] = [chart.steps[0], chart.steps.at(-1)];
    const [min, max] = zoom ?? [first, last];
    plot.current.setScale("x", min === max ? { min: min - 0.5, max: max + 0.5 } : { min, max });
  }, [looks, chart, width, zoom?.join()]);
  // Alarms may arrive when the curves have long been drawn.
  useEffect(() => {
    if (plot.current) draw.current(plot.current);
  }, [marks.map(({ alarm }) => alarm.step).join()]);
  useEffect(() => () => plot.current?.destroy(), []);

  const move = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot.current) return;
    event.preventDefault();
    const next = Math.min(chart.steps.length - 1, Math.max(0, (index ?? (step > 0 ? -1 : chart.steps.length)) + step));
    plot.current.setCursor({ left: plot.current.valToPos(chart.steps[next] as number, "x"), top: 10 });
  };
  return (
    <div class="plot" tabIndex={0} role="img" aria-label={spoken(name, chart)} onKeyDown={move}>
      <div ref={place} class="plot-canvas" />
      {spots.map((left, i) => left >= (plot.current?.over.offsetLeft ?? 0) && left <= width && <Mark left={left} mark={marks[i]} key={i} />)}
    </div>
  );
}

function Mark({ left, mark }: { left: number; mark: Props["marks"][number] | undefined }) {
  if (!mark) return null;
  const { run, alarm } = mark;
  return (
    <a
      class="mark"
      style={{ left: `${left}px` }}
      href={link("monitors", { run, at: `${alarm.monitor}:${alarm.step}` })}
      title={`step ${alarm.step}: ${alarm.monitor}. ${alarm.message}`}
      aria-label={`Alarm ${alarm.monitor} at step ${alarm.step}`}
    >
      !
    </a>
  );
}

function spoken(name: string, chart: ChartLines): string {
  const shown = chart.lines.filter((line) => line.look === "line");
  const values = shown.map((line) => `${line.label} ends at ${number(lastOf(line))}`).join(", ");
  return `${name} over steps ${chart.steps[0] ?? 0} to ${chart.steps.at(-1) ?? 0}: ${values}. Arrow keys move the cursor.`;
}

/** The last values, or those at the cursor. */
function Values({ chart, index }: { chart: ChartLines; index: number | null }) {
  const dark = isDark();
  const shown = chart.lines.map((line, i) => ({ line, i })).filter(({ line }) => line.look === "line" || line.look === "reference");
  const shownAt = index ?? lastPlace(chart);
  const step = chart.steps[shownAt];
  const fills = chart.fills.map(([, bottom]) => chart.lines[bottom]?.look);
  if (step === undefined) return null;
  return (
    <dl class="values">
      <div class="values-step"><dt class="muted">step</dt><dd>{step}</dd></div>
      {shown.map(({ line, i }) => {
        const before = chart.lines[i - 1];
        const place = shownPlace(chart, line, index);
        const raw = index !== null && before?.look === "raw" ? (before.values[index] ?? null) : null;
        return (
          <div key={i} title={line.about}>
            <dt>
              <i class={`dash ${line.look}`} style={line.colour < 0 ? {} : { background: runColour(line.colour, dark) }} />
              {line.label}
            </dt>
            <dd>{number(line.values[place])}{place >= 0 && place !== shownAt && <span class="muted"> at step {chart.steps[place]}</span>}{raw !== null && <span class="muted"> ({number(raw)})</span>}</dd>
          </div>
        );
      })}
      {fills.length > 0 && (
        <div class="muted">
          {[fills.includes("edge") && "band: all seeds", fills.includes("reference-edge") && "grey: the recipe’s range"].filter(Boolean).join("; ")}
        </div>
      )}
    </dl>
  );
}
