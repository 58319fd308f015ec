/** One rollout, token by token, with everything that is known of it. */
import { useEffect, useMemo } from "preact/hooks";
import * as api from "../data/api.ts";
import { useAnswer } from "../data/fetch.ts";
import type { Rollout, Row, Run } from "../data/types.ts";
import { useKeys } from "../keys.ts";
import { go, link, param, setParams } from "../route.ts";
import { Visible } from "../text/chips.tsx";
import { Conversation } from "../tokens/conversation.tsx";
import { focusToken, Readout } from "../tokens/hover.tsx";
import { ColourPicker, Legend } from "../tokens/legend.tsx";
import { type Mode, nextMode, readMode, scaleOf } from "../tokens/scale.ts";
import { Strip } from "../tokens/strip.tsx";
import { currentRun, Loading, Problem } from "../ui/parts.tsx";
import { useNarrow } from "../ui/narrow.ts";
import { Facts } from "./facts.tsx";
import { Outline } from "./outline.tsx";

export function RolloutPage() {
  const run = currentRun();
  if (!run) return <Loading what="the runs" />;
  return <RolloutView run={run} rolloutKey={param("key")} key={`${run.id} ${param("key")}`} />;
}

const NO_ROWS: Row[] = [];

function RolloutView({ run, rolloutKey }: { run: Run; rolloutKey: string }) {
  const answer = useAnswer(`${run.id} ${rolloutKey}`, () => api.rollout(run.id, rolloutKey));
  const rollout = answer.value;
  const mode = readMode(param("color"));
  const members = useAnswer(`${run.id} ${rollout?.group ?? ""}`, async () => (rollout ? (await api.group(run.id, rollout.group, rollout.file)).rows : NO_ROWS));
  const tasks = useAnswer(`${run.id} ${rollout?.task ?? ""}`, async () => (rollout ? (await api.task(run.id, rollout.task)).rows : NO_ROWS));
  const toGroup = rollout ? groupAddress(run, rollout, mode) : {};
  const toKey = (key: string | undefined): void => void (key && setParams({ key, tok: null }, true));
  const near = (step: number): string | undefined => {
    const rows = members.value ?? NO_ROWS;
    return rows[rows.findIndex((row) => row.key === rolloutKey) + step]?.key;
  };
  useKeys({
    j: () => toKey(near(1)),
    k: () => toKey(near(-1)),
    Escape: () => (rollout ? go("group", toGroup) : go("rollouts", { run: run.id })),
    c: () => setParams({ color: nextMode(mode) }),
    "[": () => toKey(sameTask(tasks.value ?? NO_ROWS, rollout, -1)),
    "]": () => toKey(sameTask(tasks.value ?? NO_ROWS, rollout, 1)),
  });
  if (answer.error) return <div class="rollout"><Problem text={answer.error} /></div>;
  if (!rollout) return <Loading what="the rollout" />;
  return (
    <div class="rollout">
      <header class="page-head">
        <a class="back" href={link("group", toGroup)}>Group</a>
        <h1><Visible text={rollout.task} /></h1>
        <p class="facts">
          {[run.name, rollout.environment, rollout.role, rollout.step === null ? "" : `step ${rollout.step}`, rolloutKey].filter(Boolean).map((text) => <span key={text}>{text}</span>)}
        </p>
        <div class="steps">
          <button type="button" disabled={!near(-1)} title="The rollout before ( k )" aria-label="The rollout before" onClick={() => toKey(near(-1))}>‹</button>
          <button type="button" disabled={!near(1)} title="The next rollout ( j )" aria-label="The next rollout" onClick={() => toKey(near(1))}>›</button>
        </div>
      </header>
      <Text rollout={rollout} mode={mode} />
      <Facts run={run} rollout={rollout} others={(tasks.value ?? NO_ROWS).filter((row) => row.key !== rolloutKey)} />
    </div>
  );
}

function groupAddress(run: Run, rollout: Rollout, mode: Mode) {
  const file = rollout.file;
  return { run: run.id, group: rollout.group, file: file === "train" ? null : file, color: mode };
}

/** The same task the next time it was played, or the time before. */
function sameTask(rows: Row[], rollout: Rollout | null, direction: 1 | -1): string | undefined {
  if (!rollout) return undefined;
  const step = rollout.step ?? 0;
  const others = rows.filter((row) => ((row.step ?? 0) - step) * direction > 0).sort((a, b) => ((a.step ?? 0) - (b.step ?? 0)) * direction);
  return others[0]?.key;
}

function Text({ rollout, mode }: { rollout: Rollout; mode: Mode }) {
  const scale = useMemo(() => scaleOf([rollout], mode), [rollout, mode]);
  const asked = param("tok");
  const chosen = asked === "" ? -1 : Number(asked);
  const choose = (t: number): void => setParams({ tok: t });
  useEffect(() => {
    const token = document.querySelector<HTMLElement>(`[data-t="${chosen}"]`);
    if (token && token !== document.activeElement) {
      token.scrollIntoView({ block: "center" });
      focusToken(token);
    }
  }, [chosen, rollout]);
  return (
    <section class="rollout-text" aria-label="Conversation">
      <div class="colour-line">
        <ColourPicker mode={mode} choose={(next) => setParams({ color: next })} />
        <Legend scale={scale} />
      </div>
      {rollout.tokens_note && <p class="note">{rollout.tokens_note}</p>}
      {useNarrow() && <Outline rollout={rollout} />}
      <Strip rollout={rollout} mode={mode} choose={choose} />
      <Conversation rollout={rollout} scale={scale} chosen={chosen} choose={choose} />
      <Readout mode={mode} />
    </section>
  );
}
