/** The address: a page and its parameters in the hash, so that a link shows a colleague the same. */
import { signal } from "@preact/signals";

export const PAGES = ["curves", "groups", "group", "rollouts", "rollout", "compare", "monitors"] as const;
export type Page = (typeof PAGES)[number];
export type Params = Record<string, string | number | null | undefined>;

export interface Route {
  page: Page;
  params: URLSearchParams;
}

export function parseHash(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const page = PAGES.find((known) => known === path) ?? "curves";
  return { page, params: new URLSearchParams(search) };
}

/** The hash of a page; parameters that are null, undefined or empty are left out. */
export function link(page: Page, params: Params = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(params))
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  // These are allowed in a fragment, and a person can read the link then.
  const text = search.toString().replaceAll("%2F", "/").replaceAll("%3A", ":").replaceAll("%2C", ",");
  return text ? `#/${page}?${text}` : `#/${page}`;
}

export const route = signal<Route>(parseHash(typeof location === "undefined" ? "" : location.hash));

export function follow(): void {
  addEventListener("hashchange", () => {
    route.value = parseHash(location.hash);
  });
}

export function go(page: Page, params: Params = {}): void {
  location.hash = link(page, params);
}

/** Change parameters of the page that is shown. The step back leaves the page, unless `push` is set. */
export function setParams(patch: Params, push = false): void {
  const { page, params } = route.peek();
  const hash = link(page, { ...Object.fromEntries(params), ...patch });
  if (push) {
    location.hash = hash;
    return;
  }
  history.replaceState(null, "", hash);
  route.value = parseHash(hash);
}

export function param(name: string, otherwise = ""): string {
  return route.value.params.get(name) ?? otherwise;
}
