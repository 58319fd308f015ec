/** Numbers as people read them. */
import type { Num } from "./data/types.ts";

export const NONE = "–";

/** Four significant digits, without an exponent where a few zeros do. */
export function number(value: Num | undefined, digits = 4): string {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(digits - 2).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  if (Number.isInteger(value)) return value.toLocaleString("en").replace("-", "−");
  return String(Number(value.toPrecision(digits))).replace("-", "−");
}

/** With a sign, for what may be good or bad. */
export function signed(value: Num | undefined, digits = 3): string {
  const text = number(value, digits);
  return value !== null && value !== undefined && value > 0 ? `+${text}` : text;
}

export const whole = (value: number): string => value.toLocaleString("en");

export const plural = (count: number, one: string, many = `${one}s`): string => `${whole(count)} ${count === 1 ? one : many}`;

const MOST_SHOWN = 32; // characters of a name in a list to choose from

/** The beginning and the end of a long name: runs differ in the ends of theirs. */
export function shortened(name: string, most = MOST_SHOWN): string {
  if (name.length <= most) return name;
  const end = Math.ceil((most - 1) * 0.6);
  return `${name.slice(0, most - 1 - end)}…${name.slice(-end)}`;
}

/** The time since then, roughly. */
export function ago(seconds: number, now = Date.now() / 1000): string {
  const passed = Math.max(0, now - seconds);
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${plural(Math.floor(passed / 86400), "day")} ago`;
}

/** The name of an evaluation, such as `final_greedy`, in words. */
export const worded = (name: string): string => name.replaceAll("_", " ");
