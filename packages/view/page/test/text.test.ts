import assert from "node:assert/strict";
import { test } from "node:test";
import { visibleText } from "../src/text/visible.ts";

const shown = (text: string): string => visibleText(text).map((piece) => (typeof piece === "string" ? piece : `[${piece.code}]`)).join("");
const raw = (text: string): string => visibleText(text).map((piece) => (typeof piece === "string" ? piece : piece.raw)).join("");

test("what cannot be seen is shown by its number", () => {
  assert.equal(shown("a\u202eb"), "a[U+202E]b");
  assert.equal(shown("\x1b[31m"), "[U+001B][31m");
  assert.equal(shown("zero\u200bwidth\ufeff\u2060"), "zero[U+200B]width[U+FEFF][U+2060]");
  assert.equal(shown("\x00\r\x7f\u0085"), "[U+0000][U+000D][U+007F][U+0085]");
  assert.equal(shown("\u{e0041}\ud800"), "[U+E0041][U+D800]");
  assert.equal(shown("\u2028\u00ad\u3164"), "[U+2028][U+00AD][U+3164]");
});

test("what can be seen stays as it is", () => {
  for (const text of ["plain text", "tab\tand\nnewline", "Zürich, 東京, עברית, العربية", "👩‍👩‍👧 ❤️ 👍🏽", "<b>&amp;</b>", ""])
    assert.equal(shown(text), text);
});

test("no character is lost", () => {
  let all = "";
  for (let code = 0; code < 0x3000; code++) all += String.fromCharCode(code);
  assert.equal(raw(all), all);
});

test("piled marks are cut into chips", () => {
  assert.equal(shown("a\u0301\u0302"), "a\u0301\u0302");
  assert.equal(shown("a\u0301\u0302\u0303\u0304\u0305"), "a\u0301\u0302\u0303[U+0304][U+0305]");
});
