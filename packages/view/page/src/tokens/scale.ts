/** From a statistic of a token to one of a few colours. The colours themselves are in styles/tokens.css. */
import { number, signed } from "../format.ts";
import type { Num, Rollout } from "../data/types.ts";

export const MODES = ["advantage", "logprob", "ratio", "entropy", "version", "mask", "none"] as const;
export type Mode = (typeof MODES)[number];

export const LABEL: Record<Mode, string> = {
  advantage: "advantage",
  logprob: "log-prob",
  ratio: "ratio",
  entropy: "entropy",
  version: "version",
  mask: "mask",
  none: "plain",
};

export const MEANING: Record<Mode, string> = {
  advantage: "How much the token is pushed up or down by this step.",
  logprob: "Log-probability when it was sampled: the stronger, the less expected.",
  ratio: "Probability under the trained weights over that under the sampler's: 1 where both agree.",
  entropy: "Entropy of the distribution that it was drawn from, in nats: the stronger, the less sure.",
  version: "Version of the weights that it was sampled from.",
  mask: "Tokens that are trained on. The others were read, not written.",
  none: "No colour.",
};

/** Bins on either side of zero, and of a scale that begins at zero. */
export const BINS = 6;
export const HUES = 6;

export interface Scale {
  mode: Mode;
  kind: "diverging" | "rising" | "classes" | "none";
  /** The value at the strongest colour. */
  top: number;
  classes: number[];
  /** Why there is nothing to see; empty if there is. */
  silence: string;
}

export function readMode(text: string): Mode {
  return MODES.find((mode) => mode === text) ?? "advantage";
}

export function nextMode(mode: Mode): Mode {
  return MODES[(MODES.indexOf(mode) + 1) % MODES.length] as Mode;
}

/** The advantage of a token: the trainer's, or that of its turn where the trainer's was not recorded. */
export function advantageAt(rollout: Rollout, t: number): Num {
  const tokens = rollout.tokens;
  if (!tokens?.mask[t]) return null;
  const trained = tokens.advantage?.[t];
  if (trained !== null && trained !== undefined) return trained;
  return rollout.advantages[tokens.turn[t] ?? -1] ?? null;
}

/** The statistic of a token, as it is coloured; null where there is none, as for tokens that were not sampled. */
export function valueAt(rollout: Rollout, mode: Mode, t: number): Num {
  const tokens = rollout.tokens;
  if (!tokens || mode === "none") return null;
  if (mode === "mask") return tokens.mask[t] ?? 0;
  if (!tokens.mask[t]) return null;
  if (mode === "advantage") return advantageAt(rollout, t);
  if (mode === "ratio") return tokens.log_ratio?.[t] ?? null;
  return tokens[mode]?.[t] ?? null;
}

const FIXED: Partial<Record<Mode, Scale["kind"]>> = { advantage: "diverging", ratio: "diverging", version: "classes", mask: "classes" };
/** The least that full colour stands for, so that noise of rounding does not look like a signal. */
const LEAST: Partial<Record<Mode, number>> = { advantage: 1e-6, ratio: 0.02, entropy: 0.1, logprob: 0.1 };

/** One scale for all the rollouts that stand side by side. */
export function scaleOf(rollouts: Rollout[], mode: Mode): Scale {
  const kind = mode === "none" ? "none" : (FIXED[mode] ?? "rising");
  const sizes: number[] = [];
  const classes = new Set<number>();
  for (const rollout of rollouts)
    for (let t = 0; t < (rollout.tokens?.mask.length ?? 0); t++) {
      const value = valueAt(rollout, mode, t);
      if (value === null) continue;
      if (kind === "classes") classes.add(value);
      else sizes.push(Math.abs(value));
    }
  sizes.sort((a, b) => a - b);
  // One outlier would make all the others pale.
  const top = Math.max(sizes[Math.min(sizes.length - 1, Math.floor(sizes.length * 0.99))] ?? 0, LEAST[mode] ?? 0);
  const silence = silenceOf(mode, sizes, classes.size);
  return { mode, kind, top, classes: [...classes].sort((a, b) => a - b), silence };
}

function silenceOf(mode: Mode, sizes: number[], classes: number): string {
  if (mode === "none" || classes) return "";
  if (mode === "entropy" || mode === "ratio")
    if (!sizes.length) return `No ${LABEL[mode]} was recorded here: it is written after the step that trains on the rollout.`;
  if (!sizes.length) return `No ${LABEL[mode]} was recorded here.`;
  if (mode === "advantage" && sizes.at(-1) === 0) return "All advantages are 0: this group changes nothing.";
  return "";
}

/** The class of a token's colour: `d-6` to `d6`, `s1` to `s6`, `h0` to `h5`; empty for none. */
export function colourOf(scale: Scale, value: Num): string {
  if (value === null || scale.kind === "none") return "";
  if (scale.kind === "classes") {
    if (scale.mode === "mask") return value ? "m1" : "";
    return `h${scale.classes.indexOf(value) % HUES}`;
  }
  const share = Math.min(1, Math.abs(value) / scale.top);
  const bin = Math.ceil(share * BINS - 1e-9);
  if (!bin) return "";
  return scale.kind === "rising" ? `s${bin}` : `d${value < 0 ? "-" : ""}${bin}`;
}

/** A statistic in words, as the readout and the legend show it. */
export function show(mode: Mode, value: Num): string {
  if (value === null) return number(null);
  if (mode === "ratio") return number(Math.exp(value), 4);
  if (mode === "advantage") return signed(value);
  return mode === "mask" ? (value ? "trained on" : "read only") : number(value, 3);
}
