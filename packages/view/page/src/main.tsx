/** The page begins here. */
import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/curves.css";
import "./styles/lists.css";
import "./styles/tokens.css";
import "./styles/details.css";
import "@preact/signals";
import { render } from "preact";
import { App } from "./app.tsx";
import { start } from "./data/store.ts";
import { listen } from "./keys.ts";
import { follow } from "./route.ts";
import { copyRaw } from "./text/chips.tsx";
import { applyTheme } from "./theme.ts";

applyTheme();
follow();
listen();
copyRaw();
void start();
render(<App />, document.getElementById("app") as HTMLElement);
