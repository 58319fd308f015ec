/** The tasks of two evaluations: which got better, which worse. */
import type { Pair, PairsAnswer } from "../data/types.ts";
import { number, signed, whole } from "../format.ts";
import { param, setParams } from "../route.ts";
import { Visible } from "../text/chips.tsx";

export type Outcome = "better" | "worse" | "same" | "alone";
const SHOWN = ["all", "better", "worse", "same"] as const;

export function gainOf({ left, right }: Pair): number | null {
  return left?.reward == null || right?.reward == null ? null : right.reward - left.reward;
}

export function outcomeOf(pair: Pair): Outcome {
  const gain = gainOf(pair);
  if (gain === null) return "alone";
  return gain > 0 ? "better" : gain < 0 ? "worse" : "same";
}

/** What changed most comes first. */
export function shownPairs(pairs: Pair[], show: string): Pair[] {
  const kept = show === "all" || show === "" ? pairs : pairs.filter((pair) => outcomeOf(pair) === show);
  return [...kept].sort((a, b) => Math.abs(gainOf(b) ?? -1) - Math.abs(gainOf(a) ?? -1));
}

/** How many characters all tasks begin with, up to a slash: they need not be read on every line. */
function commonFolder(tasks: string[]): number {
  const first = tasks[0] ?? "";
  let length = 0;
  for (let cut = first.indexOf("/"); cut >= 0 && tasks.every((task) => task.startsWith(first.slice(0, cut + 1))); cut = first.indexOf("/", cut + 1))
    length = cut + 1;
  return length;
}

export function PairList({ answer, pairs, chosen, choose }: { answer: PairsAnswer; pairs: Pair[]; chosen: string; choose: (pair: Pair) => void }) {
  const show = param("show", "all");
  const prefix = commonFolder(answer.pairs.map(({ task }) => task));
  const counts = { all: answer.pairs.length, better: answer.better, worse: answer.worse, same: answer.same };
  return (
    <nav class="pairs" aria-label="Tasks">
      <div class="segmented" role="radiogroup" aria-label="Which tasks">
        {SHOWN.map((each) => (
          <button type="button" role="radio" aria-checked={show === each} onClick={() => setParams({ show: each === "all" ? null : each })} key={each}>
            {each} <span class="muted">{whole(counts[each])}</span>
          </button>
        ))}
      </div>
      <ul>
        {pairs.map((pair) => (
          <li key={pair.task}>
            <button type="button" class={`pair pair-${outcomeOf(pair)}`} aria-current={pair.task === chosen} data-pair={pair.task} title={pair.task} disabled={!pair.left || !pair.right} onClick={() => choose(pair)}>
              <span class="pair-task"><Visible text={pair.task.slice(prefix)} /></span>
              <span class="num muted">{number(pair.left?.reward, 2)} → {number(pair.right?.reward, 2)}</span>
              <span class="num pair-gain">{signed(gainOf(pair), 2)}</span>
            </button>
          </li>
        ))}
      </ul>
      {!pairs.length && <p class="muted">No task is among those.</p>}
    </nav>
  );
}
