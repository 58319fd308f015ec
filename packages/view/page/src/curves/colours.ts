/** Colours of runs, apart for colour-blind readers too (after Okabe and Ito), for either background. */

const LIGHT = ["#0b6bb8", "#d55e00", "#00865f", "#a4508b", "#8a6d00", "#2f8fc4", "#7a4b2a", "#4d4d4d"];
const DARK = ["#5aa9f0", "#ff9a4d", "#3cc79a", "#e08ac4", "#e6c229", "#8fd0f5", "#c9a07c", "#b8b8b8"];

export function runColour(index: number, dark: boolean): string {
  const palette = dark ? DARK : LIGHT;
  return palette[index % palette.length] as string;
}

export interface Ink {
  axis: string;
  grid: string;
  healthy: string;
  reference: string;
}

export const ink = (dark: boolean): Ink =>
  dark
    ? { axis: "#9aa0a8", grid: "#25282d", healthy: "rgba(60,199,154,0.09)", reference: "#9aa0a8" }
    : { axis: "#5f646b", grid: "#eceae6", healthy: "rgba(0,134,95,0.07)", reference: "#7b8087" };

/** The colour `#rrggbb` with an opacity. */
export function faint(colour: string, opacity: number): string {
  return colour + Math.round(opacity * 255).toString(16).padStart(2, "0");
}
