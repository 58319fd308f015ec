/** Asks the server for data. An error's message is a sentence for the reader. */

export type Query = Record<string, string | number>;

export async function get(path: string, query: Query = {}): Promise<unknown> {
  const search = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString();
  let answer: Response;
  try {
    answer = await fetch(search ? `${path}?${search}` : path, { headers: { accept: "application/json" } });
  } catch {
    throw new Error("The server does not answer. Is `slimrl view` still running?");
  }
  let value: unknown;
  try {
    value = await answer.json();
  } catch {
    throw new Error(`The server answered ${path} with something other than JSON (status ${answer.status}).`);
  }
  if (!answer.ok) throw new Error((value as { error: string }).error);
  return value;
}
