/** Light, dark, or as the system has it. */
import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const KEY = "slimrl-theme";

const remembered = (): Theme => {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "auto";
  } catch {
    return "auto"; // a page from disk may have no storage
  }
};

const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
export const theme = signal<Theme>(remembered());

export const isDark = (): boolean => (theme.value === "auto" ? systemDark.value : theme.value === "dark");

export function applyTheme(): void {
  system.addEventListener("change", () => {
    systemDark.value = system.matches;
  });
  effect(() => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    try {
      localStorage.setItem(KEY, theme.value);
    } catch {
      // nothing is remembered then
    }
  });
}

export function toggleTheme(): void {
  theme.value = isDark() ? "light" : "dark";
}
