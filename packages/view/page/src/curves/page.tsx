/** Any metric of any run, over the training steps. */
import { useMemo } from "preact/hooks";
import { param, setParams } from "../route.ts";
import { runs as allRuns, trainings } from "../data/store.ts";
import { focusSearch, useKeys } from "../keys.ts";
import { Empty, Problem } from "../ui/parts.tsx";
import { alarms, metrics, metricsProblem, references, useMetrics } from "./data.ts";
import { Chart, type Zoom } from "./chart.tsx";
import { choose, defaultMetrics, firstOfEach } from "./choice.ts";
import { experiments, type RunSeries, type Settings } from "./lines.ts";
import { MetricList } from "./metric_list.tsx";
import { RunList } from "./run_list.tsx";

const MOST_RUNS = 6; // that are shown without being asked for

export function chosenRuns(): string[] {
  const known = trainings.value.map((run) => run.id);
  const asked = param("runs").split(",").filter((id) => known.includes(id));
  return asked.length ? asked : known.slice(0, MOST_RUNS);
}

function readZoom(text: string): Zoom {
  const [low, high] = text.split("..").map(Number);
  return text && low !== undefined && high !== undefined && low < high ? [low, high] : null;
}

const round = (value: number): string => String(Number(value.toFixed(2)));

export function CurvesPage() {
  const ids = chosenRuns();
  useMetrics(ids);
  useKeys({ "/": focusSearch, Escape: () => setParams({ x: null }) });
  const known = metrics.value;
  const runs: RunSeries[] = useMemo(
    () =>
      trainings.value.flatMap((run, colour) =>
        ids.includes(run.id) ? [{ run, colour, series: known[run.id]?.series ?? {}, reference: references.value[run.id] ?? null }] : [],
      ),
    [ids.join(), known, references.value, trainings.value],
  );
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.series)))];
  const asked = param("m").split(",").filter(Boolean);
  const shown = asked.length ? asked : defaultMetrics(names);
  const zoom = readZoom(param("x"));
  const [smoothing, log, together] = [Number(param("smooth", "0")) || 0, param("log") === "1", param("seeds") !== "0"];
  const settings: Settings = useMemo(() => ({ smoothing, log, seeds: together }), [smoothing, log, together]);
  const marks = ids.flatMap((run) => firstOfEach(alarms.value[run] ?? []).map((alarm) => ({ run, alarm })));
  if (allRuns.value?.length === 0) return <Empty title="No runs">Start the viewer with the output directory of a run: <code>slimrl view outputs/rl</code>.</Empty>;
  return (
    <div class="curves">
      <aside class="side">
        <RunList chosen={ids} />
        <MetricList names={names} chosen={shown} runs={runs} toggle={(name) => setParams({ m: choose(shown, name).join(",") })} />
      </aside>
      <section class="curves-main" aria-label="Charts">
        <Toolbar settings={settings} runs={runs} zoom={zoom} />
        <Problem text={metricsProblem.value} />
        {names.length === 0 && !metricsProblem.value && (
          <Empty title="No metrics yet">
            {ids.some((id) => known[id]) ? "Curves appear here with the first training step, and grow by themselves." : "Reading metrics.jsonl …"}
          </Empty>
        )}
        <div class="charts">
          {names.length > 0 && shown.map((name) => (
            <Chart
              key={name}
              name={name}
              runs={runs}
              settings={settings}
              marks={marks.filter(({ alarm }) => !alarm.metric || alarm.metric === name)}
              zoom={zoom}
              onZoom={(range) => setParams({ x: range ? `${round(range[0])}..${round(range[1])}` : null })}
              remove={() => setParams({ m: choose(shown, name).join(",") || null })}
            />
          ))}
        </div>
      </section>
    </div>
  );
}

function Toolbar({ settings, runs, zoom }: { settings: Settings; runs: RunSeries[]; zoom: Zoom }) {
  const { smoothing, log, seeds } = settings;
  const severalSeeds = experiments(runs, true).some((experiment) => experiment.members.length > 1);
  return (
    <div class="toolbar" role="toolbar" aria-label="How the curves are drawn">
      <label class="slider">
        <span>smoothing</span>
        <input
          type="range" min="0" max="0.95" step="0.05" value={smoothing}
          onInput={(event) => setParams({ smooth: event.currentTarget.value === "0" ? null : event.currentTarget.value })}
        />
        <output>{smoothing ? smoothing.toFixed(2) : "off"}</output>
      </label>
      <label class="check"><input type="checkbox" checked={log} onChange={() => setParams({ log: log ? null : "1" })} />log scale</label>
      {severalSeeds && (
        <label class="check" title="Runs that differ in nothing but the seed: their mean, and a band from the lowest to the highest">
          <input type="checkbox" checked={seeds} onChange={() => setParams({ seeds: seeds ? "0" : null })} />seeds as a band
        </label>
      )}
      {zoom ? (
        <button type="button" onClick={() => setParams({ x: null })}>steps {Math.ceil(zoom[0])} to {Math.floor(zoom[1])} ×</button>
      ) : (
        <span class="muted small hint">drag across a chart to zoom</span>
      )}
    </div>
  );
}
