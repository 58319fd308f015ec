/** Data that `slimrl view --export` wrote: scripts beside the page, since fetch does not work under file://. */
import { DataError, type DataSource, type Query } from "./source.ts";
import { countFacets, groupsOf, selectRows, sortBy } from "./where.ts";
import type { Condition, Group, Pair, PairsAnswer, Rollout, Row } from "./types.ts";

interface Manifest {
  files: Record<string, string>;
  rollouts: Record<string, { index: string[]; details: string[] }>;
  note: string;
}

type Details = Record<string, Rollout>;

export class ExportedSource implements DataSource {
  readonly live = false;
  private readonly arrived = new Map<string, unknown>();
  private readonly asked = new Map<string, Promise<unknown>>();
  private readonly rows = new Map<string, Promise<Row[]>>();

  constructor() {
    (window as unknown as { slimrlData: (key: string, value: unknown) => void }).slimrlData = (key, value) => {
      this.arrived.set(key, value);
    };
  }

  async note(): Promise<string> {
    return (await this.manifest()).note;
  }

  async get(path: string, query: Query = {}): Promise<unknown> {
    const manifest = await this.manifest();
    const file = manifest.files[path];
    if (file !== undefined) return this.load(file);
    if (path === "/api/state") return { version: "", runs: [] };
    if (path === "/api/compare") return this.compare(String(query.left), String(query.right));
    if (path === "/api/held_out_pairs") return this.pairs(String(query.left), String(query.right));
    const [, , , id = "", what = ""] = path.split("/");
    return this.answer(decodeURIComponent(id), what, query);
  }

  private async answer(id: string, what: string, query: Query): Promise<unknown> {
    if (what === "rollout") return this.rollout(id, String(query.key));
    const rows = await this.index(id);
    if (what === "task") return { rows: rows.filter((row) => row.task === query.task) };
    const file = String(query.file ?? "train");
    if (what === "group") {
      const members = rows.filter((row) => row.group === query.group && (row.file ?? "train") === file);
      if (!members.length) throw new DataError(`The export has no group "${String(query.group)}".`);
      return { rows: members, metric_names: [...new Set(members.flatMap((row) => Object.keys(row.metrics ?? {})))] };
    }
    const where = JSON.parse(String(query.where ?? "[]")) as Condition[];
    const sort = String(query.sort ?? "");
    const texts = where.some((condition) => condition.field === "text") ? await this.texts(id) : new Map<string, string>();
    const text = (row: Row): string => texts.get(row.key) ?? row.excerpt;
    const matched = selectRows(rows, { where, sort: what === "rollouts" ? sort : "", file }, text);
    const [offset, limit] = [Number(query.offset ?? 0), Number(query.limit ?? 50)];
    const all = rows.filter((row) => (row.file ?? "train") === file);
    if (what === "rollouts") {
      const page = matched.slice(offset, offset + limit);
      return { total: all.length, matched: matched.length, rows: page, facets: countFacets(matched) };
    }
    if (what !== "groups") throw new DataError(`The export does not have ${what}.`);
    const wanted = new Set(matched.map((row) => row.group));
    const groups = groupsOf(all.filter((row) => wanted.has(row.group)));
    const sorted = sortBy(groups, sort, (group, key) => group[key as keyof Group] as string | number | null);
    return { total: groupsOf(all).length, matched: sorted.length, groups: sorted.slice(offset, offset + limit) };
  }

  private async compare(left: string, right: string): Promise<unknown> {
    const [one, two] = await Promise.all(
      [left, right].map((place) => {
        const cut = place.indexOf(":");
        return this.rollout(place.slice(0, cut), place.slice(cut + 1));
      }),
    );
    return { left: one, right: two };
  }

  private async pairs(left: string, right: string): Promise<PairsAnswer> {
    const [ones, twos] = await Promise.all([this.evaluation(left), this.evaluation(right)]);
    const tasks = [...new Set([...ones.keys(), ...twos.keys()])];
    const pairs = tasks.map((task): Pair => ({ task, left: ones.get(task) ?? null, right: twos.get(task) ?? null }));
    const gains = pairs
      .map(({ left: one, right: two }) => (one?.reward == null || two?.reward == null ? null : two.reward - one.reward))
      .filter((gain): gain is number => gain !== null);
    return {
      pairs,
      better: gains.filter((gain) => gain > 0).length,
      worse: gains.filter((gain) => gain < 0).length,
      same: gains.filter((gain) => gain === 0).length,
    };
  }

  private async evaluation(place: string): Promise<Map<string, Row>> {
    const cut = place.indexOf("/");
    const rows = await this.index(place.slice(0, cut));
    const file = `held_out/${place.slice(cut + 1)}`;
    return new Map(rows.filter((row) => row.file === file).map((row) => [row.task, row]));
  }

  private async rollout(id: string, key: string): Promise<Rollout> {
    const row = (await this.index(id)).find((each) => each.key === key);
    const file = (await this.manifest()).rollouts[id]?.details[row?.chunk ?? -1];
    const rollout = file === undefined ? undefined : ((await this.load(file)) as Details)[key];
    if (!rollout) throw new DataError(`The export does not have the rollout ${key} of ${id}.`);
    return rollout;
  }

  private async texts(id: string): Promise<Map<string, string>> {
    const files = (await this.manifest()).rollouts[id]?.details ?? [];
    const chunks = (await Promise.all(files.map((file) => this.load(file)))) as Details[];
    return new Map(chunks.flatMap((chunk) => Object.entries(chunk).map(([key, { text }]) => [key, text] as const)));
  }

  private index(id: string): Promise<Row[]> {
    const known = this.rows.get(id);
    if (known) return known;
    const loading = this.manifest().then(async ({ rollouts }) => {
      const files = rollouts[id]?.index ?? [];
      return ((await Promise.all(files.map((file) => this.load(file)))) as Row[][]).flat();
    });
    this.rows.set(id, loading);
    return loading;
  }

  private manifest(): Promise<Manifest> {
    return this.load("manifest.js", "manifest") as Promise<Manifest>;
  }

  private load(file: string, key = file): Promise<unknown> {
    const known = this.asked.get(file);
    if (known) return known;
    const loading = new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `data/${file}`;
      script.onload = () => {
        if (this.arrived.has(key)) resolve(this.arrived.get(key));
        else reject(new DataError(`data/${file} of the export holds no data.`));
      };
      script.onerror = () => reject(new DataError(`data/${file} is missing beside this page: copy the whole folder.`));
      document.head.append(script);
    });
    this.asked.set(file, loading);
    return loading;
  }
}
