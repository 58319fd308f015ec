/** Where the page's data comes from: a server on this machine, or files that `slimrl view --export` wrote. */

export type Query = Record<string, string | number>;

export interface DataSource {
  /** Whether there may be news: an export has none. */
  readonly live: boolean;
  /** What was left out, in words; empty if nothing was. */
  note(): Promise<string>;
  get(path: string, query?: Query): Promise<unknown>;
}

/** What the reader is told: a sentence. */
export class DataError extends Error {}

export class HttpSource implements DataSource {
  readonly live = true;

  note(): Promise<string> {
    return Promise.resolve("");
  }

  async get(path: string, query: Query = {}): Promise<unknown> {
    const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString();
    let answer: Response;
    try {
      answer = await fetch(search ? `${path}?${search}` : path, { headers: { accept: "application/json" } });
    } catch {
      throw new DataError("The server does not answer. Is `slimrl view` still running?");
    }
    const text = await answer.text();
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      throw new DataError(`The server answered ${path} with something other than JSON (status ${answer.status}).`);
    }
    if (!answer.ok) throw new DataError(sentence(value) ?? `The server refused ${path} with status ${answer.status}.`);
    return value;
  }
}

function sentence(value: unknown): string | null {
  if (typeof value !== "object" || value === null) return null;
  const { error, detail } = value as { error?: unknown; detail?: unknown };
  if (typeof error === "string") return error;
  return typeof detail === "string" ? detail : null;
}
