// The chat against a server of a script.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { answered, ask, openBrowser } from "./browser.mjs";
import { framesOf } from "./fake.mjs";
import { withFake as withFakeOf, words } from "./harness.mjs";

let browser;
before(async () => { browser = await openBrowser(); });
after(() => browser.close());

const withFake = (script, use, answers) => withFakeOf(browser, script, use, answers);
const last = (body) => body.messages.at(-1).content;

test("an answer is drawn as Markdown with what its making took", () => withFake(
  () => ({ frames: framesOf(words("# Head\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\nSo $x^2$ ends.\n")) }),
  async ({ page, fake }) => {
    await ask(page, "hello");
    const answer = await answered(page);
    assert.equal(await answer.getByRole("heading", { name: "Head" }).count(), 1);
    assert.equal(await answer.locator("table td").count(), 2);
    assert.equal(await answer.locator("td.to-right").innerText(), "2");
    assert.equal(await answer.locator("pre code .hljs-built_in").innerText(), "print");
    assert.equal(await answer.locator("math").count(), 1);
    const stats = await answer.locator(".stats").innerText();
    assert.match(stats, /3 cached \+ 37 new tokens/);
    assert.match(stats, /first token 401 ms/);
    assert.match(stats, /12\.5 tokens\/s/);
    assert.equal(fake.bodies[0][1].stream, true);
    await page.waitForFunction(() => document.querySelector("[aria-live]").textContent.includes("complete"));
  }));

test("reasoning is folded with its tokens and time", () => withFake(
  () => ({ frames: framesOf(["Yes."], { reasoning: ["Let me ", "think."] }), delay: 10 }),
  async ({ page }) => {
    await ask(page, "why");
    const answer = await answered(page);
    assert.match(await answer.locator("summary").innerText(), /Thought 2 tokens, \d+ ms/);
    assert.equal(await answer.getByText("Let me think.").isVisible(), false);
    await answer.locator("summary").click();
    assert.equal(await answer.getByText("Let me think.").isVisible(), true);
  }));

test("the load of a model is shown until it answers", () => {
  const loading = [0, 0.4, 0.9].map((progress) => ({ model: "far", model_status: { value: "loading", progress } }));
  let goOn;
  const waits = new Promise((resolve) => { goOn = resolve; });
  return withFake(
    () => ({ frames: [...loading, waits, ...framesOf(["There."])] }),
    async ({ page }) => {
      await page.getByRole("combobox", { name: "Model" }).selectOption("far");
      await ask(page, "hello");
      const bar = page.getByRole("progressbar", { name: "Loading the model" });
      await page.waitForFunction(() => document.querySelector("progress")?.value === 0.9);
      assert.match(await page.getByRole("status").filter({ has: bar }).innerText(), /Loading far/);
      assert.equal(await page.getByRole("combobox", { name: "Model" }).locator("option:checked").innerText(), "far (loading 90 %)");
      goOn();
      assert.equal(await (await answered(page)).locator(".markdown").innerText(), "There.");
      assert.equal(await bar.count(), 0);
    },
    { "/v1/models": { data: [{ id: "near", status: { value: "loaded" } }, { id: "far", status: { value: "unloaded" } }] } });
});

test("who waits sees why: texts before this one, then how much of the prompt is read", () => {
  const steps = [];
  const wait = () => new Promise((resolve) => steps.push(resolve));
  const progress = (processed, queue) => ({ choices: [], prompt_progress: { total: 4000, cache: 1000, processed, time_ms: processed - 1000, queue_position: queue } });
  return withFake(
    () => ({ frames: [progress(1000, 2), wait(), progress(2000, 0), wait(), ...framesOf(["Read."])] }),
    async ({ page }) => {
      await ask(page, "hello");
      await page.getByText("Waiting: 2 before this").waitFor();
      steps[0]();
      // 1,000 tokens took a second and 2,000 are left.
      await page.getByText("Reading the prompt: 2000 of 4000 tokens, about 2.0 s left").waitFor();
      assert.equal(await page.getByRole("progressbar").getAttribute("max"), "4000");
      steps[1]();
      assert.equal(await (await answered(page)).locator(".markdown").innerText(), "Read.");
    });
});

test("code and answers are copied as they were written", () => withFake(
  () => ({ frames: framesOf(words("So:\n\n```python\nif x < 1:\n    print('&')\n```\n")) }),
  async ({ page, context }) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await ask(page, "hello");
    const answer = await answered(page);
    const copied = async (button, text) => {
      await button.click();
      await page.waitForFunction(async (expected) => await navigator.clipboard.readText() === expected, text);
    };
    await copied(answer.locator("button.copy"), "if x < 1:\n    print('&')\n");
    await copied(answer.getByRole("button", { name: "Copy", exact: true }).last(), "So:\n\n```python\nif x < 1:\n    print('&')\n```\n");
  }));

test("a connection that breaks is taken up where it broke", () => withFake(
  () => ({ frames: framesOf(words("one two three four five six")), delay: 5, dropAt: 7 }),
  async ({ page, fake }) => {
    await ask(page, "count");
    const answer = await answered(page);
    assert.equal((await answer.locator(".markdown").innerText()).trim(), "one two three four five six");
    assert.ok(fake.asked.includes("GET /v1/stream"));
  }));

test("a page that is loaded again in the middle of an answer reads on", () => withFake(
  () => ({ frames: framesOf(words("slow ".repeat(60))), delay: 25 }),
  async ({ page, fake }) => {
    await ask(page, "slowly");
    await page.getByText("slow slow slow").waitFor();
    await page.reload();
    await page.getByText("slow slow slow").waitFor();
    const answer = await answered(page);
    assert.equal((await answer.locator(".markdown").innerText()).trim(), "slow ".repeat(60).trim());
    assert.equal(fake.asked.filter((one) => one === "POST /v1/chat/completions").length, 1);
  }));

test("stop ends the answer here and on the server", () => withFake(
  () => ({ frames: framesOf(words("never ".repeat(500))), delay: 20 }),
  async ({ page, fake }) => {
    await ask(page, "go on");
    await page.getByText("never never").waitFor();
    await page.getByRole("button", { name: "Stop" }).click();
    const answer = await answered(page);
    assert.match(await answer.locator(".markdown").innerText(), /never/);
    await page.waitForTimeout(100);
    assert.ok(fake.asked.includes("DELETE /v1/stream"));
  }));

test("errors before and within an answer are shown", () => withFake(
  (body) => last(body) === "early" ? { status: 503, error: "the model is being loaded" } : { frames: framesOf(["half "]), midError: "experts cannot be read" },
  async ({ page }) => {
    await ask(page, "early");
    await page.getByRole("alert").getByText("the model is being loaded").waitFor();
    await ask(page, "late");
    await page.getByRole("alert").getByText("experts cannot be read").waitFor();
    assert.equal(await page.getByText("half").count(), 1);
  }));

test("answers are regenerated, questions edited, and branches kept", () => {
  let count = 0;
  return withFake(() => ({ frames: framesOf([`answer ${++count}`]) }), async ({ page, fake }) => {
    await ask(page, "first");
    await answered(page);
    await page.getByRole("button", { name: "Regenerate" }).click();
    await page.getByText("answer 2").waitFor();
    await answered(page);
    await page.getByRole("button", { name: "Version before" }).click();
    await page.getByText("answer 1").waitFor();
    await page.getByRole("button", { name: "Edit" }).first().click();
    await page.getByRole("textbox", { name: "Edited message" }).fill("second");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("answer 3").waitFor();
    await answered(page);
    assert.equal(last(fake.bodies.at(-1)[1]), "second");
    await page.locator("article.user").getByRole("button", { name: "Version before" }).click();
    await page.getByText("answer 3").waitFor({ state: "detached" });
  });
});

test("an answer that was cut is continued", () => withFake(
  (body) => ({ frames: framesOf(body.continue_final_message ? [" world"] : ["hello"], { finish: "length" }) }),
  async ({ page, fake }) => {
    await ask(page, "greet");
    await answered(page);
    await page.getByRole("button", { name: "Continue" }).click();
    await page.getByText("hello world").waitFor();
    assert.deepEqual(fake.bodies.at(-1)[1].messages.at(-1), { role: "assistant", content: "hello" });
  }));

test("settings, system prompt and schema are of the chat", () => withFake(
  () => ({ frames: framesOf(["{}"]) }),
  async ({ page, fake }) => {
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("System prompt").fill("Be brief.");
    await page.getByLabel("Temperature").fill("0.3");
    await page.getByLabel("JSON schema of answers").fill('{"type": "object"}');
    await ask(page, "hi");
    await answered(page);
    const body = fake.bodies.at(-1)[1];
    assert.deepEqual(body.messages[0], { role: "system", content: "Be brief." });
    assert.equal(body.temperature, 0.3);
    assert.deepEqual(body.response_format.json_schema.schema, { type: "object" });
    await page.getByRole("button", { name: "New chat" }).click();
    await ask(page, "hi again");
    await answered(page);
    assert.equal(fake.bodies.at(-1)[1].messages.length, 1);
    assert.equal(fake.bodies.at(-1)[1].temperature, undefined);
  }));

test("a key is asked for, sent, and kept nowhere", async () => {
  await withFake(() => ({ frames: framesOf(["in"]) }), async ({ page, fake }) => {
    fake.key = "secret-key";
    await page.reload();
    await page.getByRole("textbox", { name: "Key" }).fill("secret-key");
    await page.getByRole("button", { name: "Use it" }).click();
    await page.getByRole("option", { name: "fake-model" }).waitFor({ state: "attached" });
    await ask(page, "open");
    await page.getByText("in", { exact: true }).waitFor();
    const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]));
    assert.ok(!kept.includes("secret-key"));
  });
});

const kHostile = [
  "<script>window.bad = 1</script><img src=x onerror='window.bad = 2'>",
  "![spy](https://evil.example/a.png) ![spy](/v1/models) [go](javascript:window.bad=3) [data](data:text/html,<script>1</script>)",
  "<iframe src='https://evil.example'></iframe><svg onload='window.bad=4'>",
  "```html\n<script>window.bad = 5</script>\n```",
  "$\\href{javascript:window.bad=6}{x}$ $\\includegraphics{https://evil.example/b.png}$ $\\style{color:red}{x}$",
  "[a]: https://evil.example\n\n[a] <https://evil.example/c> `<b>`",
].join("\n\n");

test("hostile answers are inert", () => withFake(
  () => ({ frames: framesOf(words(kHostile)) }),
  async ({ page, fake }) => {
    await ask(page, "attack");
    const answer = await answered(page);
    await page.waitForTimeout(200);
    assert.equal(await page.evaluate(() => window.bad), undefined);
    assert.equal(await answer.locator("script, iframe, svg, img, object, embed, form, [style], [onerror], [onload]").count(), 0);
    for (const href of await answer.locator("a").evaluateAll((all) => all.map((a) => a.href))) {
      assert.match(href, /^(https?|mailto):/);
    }
    assert.ok(!fake.asked.slice(2).includes("GET /x"));
  }));

test("a line of a megabyte is drawn as plain text", () => withFake(
  () => ({ frames: framesOf(["[".repeat(500_000), "*a_".repeat(170_000)]) }),
  async ({ page }) => {
    await ask(page, "long");
    const answer = await answered(page);
    assert.equal(await answer.locator("pre.plain").count(), 1);
  }));

test("files are attached, chats are searched, exported and imported", () => withFake(
  (body) => ({ frames: framesOf([`got ${last(body).length}`]) }),
  async ({ page, fake }) => {
    await page.locator(".composer input[type=file]").setInputFiles({ name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("content of a") });
    await page.getByText("a.txt").waitFor();
    await ask(page, "read zebra");
    await answered(page);
    assert.match(last(fake.bodies.at(-1)[1]), /a\.txt\n```\ncontent of a\n```\n\nread zebra/);
    await page.getByRole("button", { name: "New chat" }).click();
    await ask(page, "other");
    await answered(page);
    await page.getByRole("searchbox", { name: "Search chats" }).fill("zebra");
    await page.waitForFunction((n) => document.querySelectorAll(".sidebar li").length === n, 1);
    const waiting = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export all" }).click();
    const file = await (await waiting).path();
    await page.locator(".sidebar input[type=file]").setInputFiles(file);
    await page.getByText("Imported 2 chats.").waitFor();
    await page.getByRole("searchbox", { name: "Search chats" }).fill("");
    await page.waitForFunction((n) => document.querySelectorAll(".sidebar li").length === n, 4);
    await page.reload();
    await page.locator(".sidebar li").nth(3).waitFor();
  }));
