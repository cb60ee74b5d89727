import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const { BlockSplitter, renderBlock, kBlockMax } = await load("markdown.ts");
const { EventReader } = await load("sse.ts");

function split(text, step) {
  const splitter = new BlockSplitter();
  for (let at = 0; at < text.length; at += step) splitter.add(text.slice(at, at + step));
  return [...splitter.blocks, splitter.tail];
}

const kText = "# Head\n\nA par\nof two.\n\n- one\n\n- two\n\n  deeper\n\nAfter.\n\n```js\na\n\nb\n```\n\n$$\nx\n$$\n\n1. a\n2. b\n\n| a |\n|---|\n| 1 |\n\nend";

test("blocks do not depend on how a text was cut, and lose nothing", () => {
  const whole = split(kText, kText.length);
  assert.equal(whole.join(""), kText);
  for (const step of [1, 2, 3, 7]) assert.deepEqual(split(kText, step), whole);
});

test("code with blank lines, lists and maths stay whole", () => {
  const blocks = split(kText, 5);
  assert.ok(blocks.includes("```js\na\n\nb\n```\n\n"));
  assert.ok(blocks.includes("- one\n\n- two\n\n  deeper\n\n"));
  assert.ok(blocks.includes("$$\nx\n$$\n\n"));
});

test("blocks one by one are drawn as the whole is", () => {
  const together = split(kText, 4).map((block) => renderBlock(block, true)).join("");
  assert.equal(together, renderBlock(kText, true));
});

test("nothing in a text becomes an element of its own making", () => {
  const html = renderBlock("<b onclick=x>hi</b> ![a](http://evil/x.png) [l](javascript:1) [m](https://a.b) $\\href{javascript:1}{x}$", true);
  assert.ok(!/<b |<img|href="javascript/.test(html), html);
  assert.match(html, /rel="noopener noreferrer nofollow" target="_blank"/);
});

test("dollars of prices are not maths", () => {
  assert.ok(!renderBlock("from $5 to $6 or $7", true).includes("<math"));
  assert.ok(renderBlock("so $a+b$, and \\(c\\)", true).match(/<math/g).length === 2);
});

test("a block beyond the bound is plain text, quickly", () => {
  const began = performance.now();
  for (const piece of ["[", "*a_", "$", "`", "> ", "(("]) {
    renderBlock(piece.repeat(Math.floor(kBlockMax / piece.length)), true);
  }
  assert.ok(renderBlock("x".repeat(kBlockMax + 1), true).startsWith("<pre"));
  assert.ok(performance.now() - began < 20_000);
});

test("events are the same however the bytes were cut", () => {
  const text = ": note\nid: 1\ndata: {\"a\": 1}\n\ndata: x\r\ndata: y\r\n\r\nid: 2\ndata: z\n\ndata: cut";
  const expected = [{ id: "1", data: '{"a": 1}' }, { id: "1", data: "x\ny" }, { id: "2", data: "z" }];
  for (const step of [1, 2, 5, 100]) {
    const reader = new EventReader();
    const events = [];
    for (let at = 0; at < text.length; at += step) events.push(...reader.read(text.slice(at, at + step)));
    assert.deepEqual(events, expected);
  }
});
