import assert from "node:assert/strict";
import { test } from "node:test";
import { load } from "./load.mjs";

const tree = await load("tree.ts");
const { exportJson, exportMarkdown, importJson } = await load("exchange.ts");

function sample() {
  const chat = tree.newChat({ system: "Be brief." });
  const question = tree.add(chat, null, { role: "user", content: "one" });
  const first = tree.add(chat, question.id, { role: "assistant", content: "first" });
  const second = tree.add(chat, question.id, { role: "assistant", content: "second", reasoning: "hm" });
  return { chat, question, first, second };
}
const texts = (chat) => tree.pathOf(chat).map((m) => m.content);

test("a second answer is a sibling, and the newest is shown", () => {
  const { chat, first } = sample();
  assert.deepEqual(texts(chat), ["one", "second"]);
  tree.show(chat, first.id);
  assert.deepEqual(texts(chat), ["one", "first"]);
  tree.show(chat, tree.pathOf(chat)[0].id);
  assert.deepEqual(texts(chat), ["one", "second"]);
});

test("removing a message shows the branch beside it, then what was above", () => {
  const { chat, first, second } = sample();
  tree.remove(chat, second.id);
  assert.deepEqual(texts(chat), ["one", "first"]);
  tree.remove(chat, first.id);
  assert.deepEqual(texts(chat), ["one"]);
});

test("messages that follow each other in a circle end the path", () => {
  const { chat, question, first } = sample();
  question.parent = first.id;
  tree.show(chat, first.id);
  assert.ok(tree.pathOf(chat).length <= 3);
});

test("a request has the system prompt, files in fences that hold, and calls with results", () => {
  const { chat } = sample();
  const asked = tree.add(chat, null, { role: "user", content: "?", attachments: [{ name: "a.md", text: "```\nx" }] });
  const called = tree.add(chat, asked.id, { role: "assistant", calls: [{ id: "c", name: "f", arguments: "{}" }] });
  tree.add(chat, called.id, { role: "tool", content: "4", callId: "c" });
  const messages = tree.requestMessages(chat, tree.pathOf(chat));
  assert.equal(messages[0].role, "system");
  assert.equal(messages[1].content, "a.md\n````\n```\nx\n````\n\n?");
  assert.equal(messages[2].tool_calls[0].function.name, "f");
  assert.deepEqual(messages[3], { role: "tool", tool_call_id: "c", content: "4" });
});

test("all words of a search have to occur", () => {
  const { chat } = sample();
  assert.ok(tree.matches(chat, "SECOND one"));
  assert.ok(!tree.matches(chat, "second three"));
});

test("an export read back is what was written", () => {
  const { chat } = sample();
  assert.deepEqual(importJson(exportJson([chat])), [chat]);
  assert.match(exportMarkdown(chat), /## You\n\none\n\n## Assistant\n\nsecond/);
});

test("files that are not an export are refused by name", () => {
  assert.match(importJson("{"), /not JSON/);
  assert.match(importJson("[]"), /not an export/);
  const format = "moeflux-chats";
  assert.match(importJson(JSON.stringify({ format, version: 2, chats: [] })), /version is 2/);
  const bad = (messages) => importJson(JSON.stringify({ format, version: 1, chats: [{ messages }] }));
  assert.match(bad({ a: { id: "a", role: "root", content: "" } }), /role is "root"/);
  assert.match(bad({ a: { id: "a", role: "user", content: "", parent: "b" } }), /follows b, which is absent/);
  const strange = importJson(`{"format": "${format}", "version": 1, "chats": [{"id": 5, "leaf": "x", "messages": {}, "__proto__": {"x": 1}}]}`);
  assert.equal(strange[0].leaf, null);
  assert.equal({}.x, undefined);
});
