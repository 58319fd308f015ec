/** Two rollouts of a task, as one text with its changes or side by side. */
import { useMemo } from "preact/hooks";
import * as api from "../data/api.ts";
import { useAnswer } from "../data/fetch.ts";
import { runOf } from "../data/store.ts";
import type { Rollout } from "../data/types.ts";
import { NONE, number, plural } from "../format.ts";
import { link, param, setParams } from "../route.ts";
import { Visible } from "../text/chips.tsx";
import { Loading, Problem, Tag } from "../ui/parts.tsx";
import { TaskData } from "../ui/task_data.tsx";
import { type Change, messagePairs, type MessagePair } from "./diff.ts";

export function DiffView({ left, right }: { left: string; right: string }) {
  const answer = useAnswer(`${left} ${right}`, () => Promise.all([left, right].map(rolloutAt)));
  const [before, after] = answer.value ?? [];
  const pairs = useMemo(() => (before && after ? messagePairs(before, after) : []), [before, after]);
  const sides = param("view") === "sides";
  if (answer.error) return <Problem text={answer.error} />;
  if (!before || !after) return <Loading what="both rollouts" />;
  return (
    <section class="diff" aria-label="Difference">
      <header class="diff-head">
        <h2><Visible text={after.task} /></h2>
        <div class="segmented" role="radiogroup" aria-label="How to compare">
          <button type="button" role="radio" aria-checked={!sides} onClick={() => setParams({ view: null })}>one text</button>
          <button type="button" role="radio" aria-checked={sides} onClick={() => setParams({ view: "sides" })}>side by side</button>
        </div>
      </header>
      <div class="diff-sides-head">
        <Side place={left} rollout={before} kind="removed" />
        <Side place={right} rollout={after} kind="added" />
      </div>
      <TaskData data={{ ...before.task_data, ...after.task_data }} />
      {pairs.map((pair, i) => <PairView pair={pair} sides={sides} key={i} />)}
    </section>
  );
}

/** Split `RUN:KEY`. */
function partsOf(place: string): [string, string] {
  const cut = place.indexOf(":");
  return [place.slice(0, cut), place.slice(cut + 1)];
}

function rolloutAt(place: string): Promise<Rollout> {
  return api.rollout(...partsOf(place));
}

function Side({ place, rollout, kind }: { place: string; rollout: Rollout; kind: "removed" | "added" }) {
  const [run, key] = partsOf(place);
  return (
    <div class={`diff-side diff-side-${kind}`}>
      <a href={link("rollout", { run, key })}>{runOf(run)?.name ?? run} · {key}</a>
      <span class="diff-reward">reward {number(rollout.reward, 3)}</span>
      {rollout.drop && <Tag kind="drop">{rollout.drop}</Tag>}
      <span class="muted small">{plural(rollout.turns, "turn")}, {rollout.num_tokens ? plural(rollout.num_tokens, "token") : `${NONE} tokens`}</span>
    </div>
  );
}

function PairView({ pair, sides }: { pair: MessagePair; sides: boolean }) {
  const { left, right, changes, role } = pair;
  const same = left === right;
  if (same && role !== "assistant")
    return (
      <details class="diff-pair diff-same">
        <summary><span class="role">{role}</span> <span class="muted small">the same on both sides</span></summary>
        <div class="diff-text raw"><Visible text={left ?? ""} /></div>
      </details>
    );
  return (
    <section class="diff-pair">
      <h4 class="segment-head">
        <span class="role">{role}</span>
        {same && <span class="muted small">the same on both sides</span>}
        {left === null && <span class="muted small">only on the right</span>}
        {right === null && <span class="muted small">only on the left</span>}
      </h4>
      {sides ? (
        <div class="diff-two">
          <div class="diff-text raw"><Changes changes={changes} without="added" /></div>
          <div class="diff-text raw"><Changes changes={changes} without="removed" /></div>
        </div>
      ) : (
        <div class="diff-text raw"><Changes changes={changes} /></div>
      )}
    </section>
  );
}

function Changes({ changes, without }: { changes: Change[]; without?: Change["kind"] }) {
  return (
    <>
      {changes.filter(({ kind }) => kind !== without).map(({ kind, text }, i) => {
        if (kind === "added") return <ins key={i}><Visible text={text} /></ins>;
        if (kind === "removed") return <del key={i}><Visible text={text} /></del>;
        return <span key={i}><Visible text={text} /></span>;
      })}
    </>
  );
}
