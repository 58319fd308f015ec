/** The answers of the server, as `docs/viewer.md` describes them. A number that is not finite arrives as null. */

export type Num = number | null;

export interface Indexing {
  done_bytes: number;
  total_bytes: number;
}

export interface RunCounters {
  id: string;
  metrics: number;
  rollouts: number;
  held_out: number;
  monitors: number;
  indexing: Indexing | null;
  /** Lines of rollout files that cannot be read, evaluations that were made and whose files have no rollout, and why the
   * index cannot be built; each only where it happens. */
  damaged?: number;
  problem?: string;
}

export interface State {
  version: string;
  runs: RunCounters[];
}

export interface Run {
  id: string;
  name: string;
  path: string;
  command: string;
  environments: string[];
  algorithm: string;
  seed: number | null;
  max_steps: number | null;
  step: number | null;
  live: boolean;
  config_key: string;
}

export interface Metric {
  name: string;
  meaning: string;
  unit: string;
  better: "higher" | "lower" | "";
  healthy: string;
  low: Num;
  high: Num;
  /** Its least and largest possible value. */
  least: Num;
  most: Num;
}

export interface Panel {
  title: string;
  names: string[];
  log: boolean;
}

export interface Registry {
  metrics: Metric[];
  groups: Record<string, string>;
  panels: Panel[];
}

export type Points = [number, Num][];

export interface MetricsAnswer {
  series: Record<string, Points>;
  last_step: number | null;
}

export interface Alarm {
  step: number;
  monitor: string;
  value: Num;
  healthy: string;
  cause: string;
  knob: string;
  message: string;
  meaning?: string;
  metric?: string;
  /** The first step of the fault; `step` is the one at which it was raised. */
  onset?: number;
}

/** A monitor with its latest value, and the settings that bound it. */
export interface Watched {
  monitor: string;
  meaning: string;
  healthy: string;
  off: boolean;
  raised: boolean;
  metric: string;
  value: Num;
  step: Num;
  bounds: [string, number][];
}

export interface Reference {
  recipe: string;
  source: string;
  /** Settings that the run has otherwise than the recipe. */
  differs?: string[];
  curves: Record<string, { steps: number[]; low: Num[]; mid: Num[]; high: Num[] }>;
}

export interface HeldOut {
  name: string;
  num: number;
}

export interface Files {
  train: { steps: number[] };
  held_out: HeldOut[];
}

export interface Row {
  key: string;
  file: string;
  step: number | null;
  line: number;
  task: string;
  environment: string;
  role: string;
  group: string;
  reward: Num;
  advantage: Num;
  drop: string;
  stop: string;
  turns: number;
  tokens: number;
  tool_calls: number;
  zero_signal: number;
  version: Num;
  excerpt: string;
  prompt: string;
}

export type Facets = Record<string, Record<string, number>>;

export interface RowsAnswer {
  total: number;
  matched: number;
  rows: Row[];
  facets?: Facets;
}

export interface Group {
  group: string;
  step: number | null;
  task: string;
  num: number;
  dropped: number;
  mean: Num;
  min: Num;
  max: Num;
  std: Num;
  zero_signal: number;
  rewards: Num[];
  /** The beginning of the prompt's last message. */
  prompt: string;
}

export interface GroupsAnswer {
  total: number;
  matched: number;
  groups: Group[];
}

export interface GroupAnswer {
  rows: Row[];
}

export interface Message {
  role: string;
  content: string;
  name?: string;
  reasoning_content?: string;
  tool_calls?: unknown[];
  tools?: unknown[];
}

export interface Tokens {
  ids: number[];
  text: string[] | null;
  mask: number[];
  logprob: Num[];
  version: Num[];
  advantage: Num[] | null;
  entropy: Num[] | null;
  log_ratio: Num[] | null;
  turn: number[];
}

export type PartKind = "text" | "thought" | "tool_call" | "answer";

export interface Part {
  begin: number;
  end: number;
  kind: PartKind;
}

export interface Segment {
  begin: number;
  end: number;
  kind: "prompt" | "reply" | "observation";
  role: string;
  parts: Part[];
}

export interface Rollout extends Omit<Row, "tokens"> {
  /** 0 if the run has not recorded the tokens: there is always a prompt. */
  num_tokens: number;
  num_sampled: number;
  metrics: Record<string, Num>;
  failure_detail: string;
  task_data?: Record<string, unknown>;
  turn_rewards: Num[];
  advantages: Num[];
  messages: Message[];
  text: string;
  tokens_note: string;
  tokens: Tokens | null;
  segments: Segment[] | null;
}

export interface Pair {
  task: string;
  left: Row | null;
  right: Row | null;
}

export interface PairsAnswer {
  pairs: Pair[];
  better: number;
  worse: number;
  same: number;
}

export type Op = "=" | "!=" | "<" | "<=" | ">" | ">=" | "has";

export interface Condition {
  field: string;
  op: Op;
  value: string | number;
}

/** Which rollouts are asked for, and in which order. */
export interface Selection {
  where: Condition[];
  sort: string;
  file: string;
}
