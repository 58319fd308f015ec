/** Whether the window is as narrow as a phone. */
import { signal } from "@preact/signals";

const query = matchMedia("(max-width: 720px)");
const narrow = signal(query.matches);
query.addEventListener("change", () => {
  narrow.value = query.matches;
});

export const useNarrow = (): boolean => narrow.value;
