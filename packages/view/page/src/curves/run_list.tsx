/** The runs, with their colours, to choose among. */
import { isDark } from "../theme.ts";
import { setParams } from "../route.ts";
import { trainings } from "../data/store.ts";
import type { Run } from "../data/types.ts";
import { runColour } from "./colours.ts";

export function progress(run: Run): string {
  if (run.step === null) return "no step yet";
  return run.max_steps ? `step ${run.step} of ${run.max_steps}` : `step ${run.step}`;
}

export function RunList({ chosen }: { chosen: string[] }) {
  const toggle = (id: string): void => {
    const next = trainings.value.map((run) => run.id).filter((each) => chosen.includes(each) !== (each === id));
    if (next.length) setParams({ runs: next.join(",") });
  };
  return (
    <fieldset class="runs">
      <legend>Runs</legend>
      {trainings.value.map((run, i) => (
        <label class="run" key={run.id} title={run.path}>
          <input type="checkbox" checked={chosen.includes(run.id)} onChange={() => toggle(run.id)} style={{ accentColor: runColour(i, isDark()) }} />
          <span class="run-text">
            <span class="run-name">{run.name}{run.live && <i class="live-dot" title="being written now" />}</span>
            <span class="muted small">{[run.algorithm, run.seed === null ? "" : `seed ${run.seed}`, progress(run)].filter(Boolean).join(" · ")}</span>
          </span>
        </label>
      ))}
    </fieldset>
  );
}
