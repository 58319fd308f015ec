/** The search box: `reward>0.5 step:3..7 drop:timeout task:q8 metric.exact=1 zero "some text"` as conditions. */
import type { Condition, Op } from "../data/types.ts";

export type Parsed = { where: Condition[]; error: "" } | { where: null; error: string };

const NUMBERS: Record<string, string> = {
  step: "training step",
  reward: "reward of the rollout",
  advantage: "mean advantage",
  turns: "turns of the policy",
  tokens: "tokens sampled",
  tool_calls: "tool calls",
  version: "version of the weights",
};
const WORDS: Record<string, string> = {
  task: "task, in part",
  env: "environment",
  environment: "environment",
  role: "role, in self-play",
  drop: "reason why it was not trained on; any, none",
  stop: "why the episode ended",
};
const ALIAS: Record<string, string> = { env: "environment" };
const PART = new Set(["task"]); // compared in part
export const FIELDS = { ...NUMBERS, ...WORDS };

const ITEM = /"((?:[^"\\]|\\.)*)("?)|([A-Za-z_][\w./-]*)\s*(<=|>=|!=|=|<|>|:)\s*("(?:[^"\\]|\\.)*"?|[^\s"]*)|(\S+)/gy;

class Mistake extends Error {}

export function parseQuery(text: string): Parsed {
  const where: Condition[] = [];
  try {
    for (const item of text.matchAll(new RegExp(ITEM.source, "g"))) where.push(...conditions(item));
    return { where, error: "" };
  } catch (error) {
    if (!(error instanceof Mistake)) throw error;
    return { where: null, error: error.message };
  }
}

function conditions(item: RegExpMatchArray): Condition[] {
  const [, quoted, closing, name, operator, value, word] = item;
  if (quoted !== undefined) {
    if (!closing) throw new Mistake(`The quotation mark before ${quoted || "the end"} is never closed.`);
    return [{ field: "text", op: "has", value: unescape(quoted) }];
  }
  if (word !== undefined) return bare(word);
  return compare(name as string, operator as string, value as string);
}

function bare(word: string): Condition[] {
  if (word === "zero") return [{ field: "zero_signal", op: "=", value: 1 }];
  if (word.startsWith("drop/")) return compare("drop", ":", word.slice(5));
  const close = nearest(word, [...Object.keys(FIELDS), "zero"]);
  if (close) throw new Mistake(`"${word}" is no filter. Did you mean ${close === "zero" ? "zero" : `${close}:…`}?`);
  throw new Mistake(`"${word}" is no filter. To search the text for it, put it in quotation marks.`);
}

function compare(name: string, operator: string, raw: string): Condition[] {
  const value = raw.startsWith('"') ? unescape(raw.replace(/^"|"$/g, "")) : raw;
  if (!value && !raw.startsWith('"')) throw new Mistake(`Nothing stands after ${name}${operator}.`);
  const field = ALIAS[name] ?? name;
  if (field === "text") return [{ field, op: "has", value }];
  if (field === "zero") return [{ field: "zero_signal", op: operator === "!=" ? "!=" : "=", value: numeric(name, value) }];
  if (field in NUMBERS || field.startsWith("metric.")) return range(field, operator, value);
  if (!(field in WORDS)) throw new Mistake(unknown(name));
  if ("<>".includes(operator[0] as string)) throw new Mistake(`${name} holds words: it can be compared with :, = and != only.`);
  if (field === "drop" && value === "any") return [{ field, op: operator === "!=" ? "=" : "!=", value: "" }];
  if (field === "drop" && value === "none") return [{ field, op: operator === "!=" ? "!=" : "=", value: "" }];
  if (PART.has(field) && operator === ":") return [{ field, op: "has", value }];
  return [{ field, op: operator === "!=" ? "!=" : "=", value }];
}

function range(field: string, operator: string, value: string): Condition[] {
  if (field === "metric.") throw new Mistake("A metric's name is missing: write metric.exact=1.");
  const parts = value.split("..");
  if (operator !== ":" || parts.length === 1)
    return [{ field, op: (operator === ":" ? "=" : operator) as Op, value: numeric(field, value) }];
  const [low = "", high = ""] = parts;
  if (parts.length > 2 || !(low || high)) throw new Mistake(`A range is written ${field}:3..7, ${field}:3.. or ${field}:..7.`);
  const found: Condition[] = [];
  if (low) found.push({ field, op: ">=", value: numeric(field, low) });
  if (high) found.push({ field, op: "<=", value: numeric(field, high) });
  return found;
}

function numeric(field: string, text: string): number {
  const value = Number(text);
  if (text === "" || !Number.isFinite(value)) throw new Mistake(`${field} is a number, and "${text}" is none.`);
  return value;
}

function unknown(name: string): string {
  const known = Object.keys(FIELDS);
  const close = nearest(name, known);
  const hint = close ? `Did you mean ${close}?` : `Known are ${known.join(", ")} and metric.NAME.`;
  return `There is no field ${name}. ${hint}`;
}

const unescape = (text: string): string => text.replace(/\\(.)/g, "$1");

/** A condition as a person would type it; numbers and plain words need no quotation marks. */
export function writeItem(field: string, value: string): string {
  const name = field === "environment" ? "env" : field;
  if (name === "drop" && value === "") return "drop:none";
  return `${name}:${/^[^\s"]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`}`;
}

/** The query with that item in it, or without it if it was there. */
export function toggleItem(query: string, item: string): string {
  const items = [...query.matchAll(new RegExp(ITEM.source, "g"))].map((match) => match[0]);
  const kept = items.filter((each) => each !== item);
  return (kept.length < items.length ? kept : [...items, item]).join(" ");
}

export function hasItem(query: string, item: string): boolean {
  return [...query.matchAll(new RegExp(ITEM.source, "g"))].some((match) => match[0] === item);
}

function nearest(word: string, known: string[]): string {
  const scored = known.map((name) => ({ name, distance: edits(word.toLowerCase(), name) }));
  const best = scored.sort((a, b) => a.distance - b.distance)[0];
  return best && best.distance <= Math.max(1, Math.floor(word.length / 3)) ? best.name : "";
}

function edits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next.push(Math.min((next[j - 1] ?? 0) + 1, (row[j] ?? 0) + 1, (row[j - 1] ?? 0) + Number(a[i - 1] !== b[j - 1])));
    row = next;
  }
  return row[b.length] ?? 0;
}
