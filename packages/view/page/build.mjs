// Builds src/ into the files that the Python package ships. `--outdir DIR` builds elsewhere, `--watch` builds at every
// change, and `--test` runs the tests of test/ in Node.
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const SHIPPED = ["preact", "@preact/signals", "@preact/signals-core", "uplot", "diff"];

/** The files whose bytes decide what is built, as paths relative to this folder, sorted. */
function sources() {
  const found = ["build.mjs", "index.html", "package.json", "tsconfig.json"];
  for (const entry of readdirSync(join(here, "src"), { recursive: true, withFileTypes: true }))
    if (entry.isFile()) found.push(join(entry.parentPath, entry.name).slice(here.length + 1));
  return found.map((path) => path.replaceAll("\\", "/")).sort();
}

/** A digest over names and contents of the sources: packages/view/tests/test_bundle.py computes the same without Node. */
function sourceHash() {
  const hash = createHash("sha256");
  for (const path of sources()) hash.update(path + "\0").update(readFileSync(join(here, path))).update("\0");
  return hash.digest("hex");
}

/** The licences of the libraries that are inside app.js and app.css. */
function licences() {
  const texts = SHIPPED.map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return `app.js and app.css contain these libraries.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
}

function options(outdir) {
  return {
    entryPoints: { app: join(here, "src/main.tsx") },
    outdir,
    bundle: true,
    minify: true,
    format: "iife",
    target: ["es2021"],
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
  };
}

async function build(outdir) {
  mkdirSync(outdir, { recursive: true });
  await esbuild.build(options(outdir));
  writeFileSync(join(outdir, "index.html"), readFileSync(join(here, "index.html")));
  writeFileSync(join(outdir, "LICENSES.txt"), licences());
  writeFileSync(join(outdir, "SOURCE.sha256"), sourceHash() + "\n");
}

async function test() {
  const outdir = mkdtempSync(join(tmpdir(), "slimrl-viewer-"));
  const files = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts"));
  await esbuild.build({
    entryPoints: files.map((name) => join(here, "test", name)),
    outdir,
    bundle: true,
    platform: "node",
    format: "esm",
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
  });
  const { status } = spawnSync(process.execPath, ["--test", ...files.map((name) => join(outdir, name.replace(/\.ts$/, ".mjs")))], {
    stdio: "inherit",
  });
  rmSync(outdir, { recursive: true });
  process.exit(status ?? 1);
}

const flag = (name) => process.argv.indexOf(name);
const outdir = flag("--outdir") > 0 ? process.argv[flag("--outdir") + 1] : join(here, "../src/slimrl_view/static");
if (flag("--test") > 0) await test();
else {
  await build(outdir);
  if (flag("--watch") > 0) await (await esbuild.context(options(outdir))).watch();
}
