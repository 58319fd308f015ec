/** Which metrics are shown, and which are offered first. */
import { registry } from "../data/store.ts";
import type { Alarm } from "../data/types.ts";

const FIRST = ["reward/mean", "held_out/reward_greedy", "loss/entropy", "rollout/tokens_sampled_mean", "reward/zero_signal_groups", "guard/mismatch_kl"];
const MOST = 6;

/** What one looks at first, of what there is. */
export function defaultMetrics(names: string[]): string[] {
  const panels = registry.value.panels.flatMap((panel) => panel.names);
  const wanted = [...new Set([...FIRST, ...panels])].filter((name) => names.includes(name));
  return (wanted.length ? wanted : names).slice(0, MOST);
}

export function choose(chosen: string[], name: string): string[] {
  return chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
}

/** An alarm that goes on for many steps is marked where it began. */
export function firstOfEach(alarms: Alarm[]): Alarm[] {
  const last = new Map<string, number>();
  return [...alarms]
    .sort((a, b) => a.step - b.step)
    .filter(({ monitor, step }) => {
      const before = last.get(monitor);
      last.set(monitor, step);
      return before === undefined || step > before + 1;
    });
}
