// Experts and Model over a scripted server; accessibility and widths of all views.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { answered, ask, openBrowser } from "./browser.mjs";
import { framesOf } from "./fake.mjs";
import { withFake as withFakeOf, words } from "./harness.mjs";
import { answers } from "./telemetry.mjs";

let browser;
before(async () => { browser = await openBrowser(); });
after(() => browser.close());

const kText = "# Head\n\nOne two `three` four five six seven. $x^2$\n\n```js\nlet a = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n";
const script = () => ({ frames: framesOf(words(kText), { reasoning: ["Hm."] }) });
const withFake = (use, more = {}, options = {}) => withFakeOf(browser, script, use, { ...answers, ...more }, options);
const tab = (page, name) => page.getByRole("tab", { name }).click();

test("the map shows tiers, and the expert under the pointer or the arrow keys", () => withFake(async ({ page }) => {
  await tab(page, "Experts");
  await page.getByText("192 on the GPU, 768 in memory, 576 on the drive alone").waitFor();
  const map = page.locator("canvas.map");
  const box = await map.boundingBox();
  await map.hover({ position: { x: (box.width * 8.5) / 64, y: 6 } });
  await page.getByText(/Layer 0, expert 8: GPU, 3\.0 MiB, used 8 times/).waitFor();
  await map.focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  await page.getByText(/Layer 1, expert 9: GPU/).waitFor();
  const colours = await map.evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
    return ["122,63,196", "29,122,76", "201,201,212"].every((colour) => seen.has(colour));
  });
  assert.ok(colours, "GPU, memory and drive have their colours");
  await page.getByText("The map as a table").click();
  assert.equal(await page.getByRole("group", { name: "Experts by layer" }).locator("tbody tr").count(), 24);
}));

test("ten minutes of rates are plotted", () => withFake(async ({ page }) => {
  await tab(page, "Experts");
  await page.waitForFunction(() => document.querySelectorAll(".charts .solid").length === 4 &&
    [...document.querySelectorAll(".charts .solid")].every((path) => path.getAttribute("d").length > 100));
  await page.getByRole("img", { name: /Waited for each token: \d/ }).waitFor();
}));

test("a token of an answer shows its routes", () => withFake(async ({ page, fake }) => {
  await ask(page, "hello");
  await answered(page);
  assert.equal(fake.bodies[0][1].return_routes, true);
  await page.getByRole("button", { name: "Routes" }).click();
  await page.getByRole("button", { name: /^Token 5,/ }).click();
  await page.getByText("Position 44: 3.8 MiB read from the drive").waitFor();
  await page.getByText("5 (0.70), 9 (0.30)").waitFor();
}));

test("a trace is recorded and plotted against cache sizes", () => withFake(async ({ page, fake }) => {
  await tab(page, "Experts");
  await page.getByRole("button", { name: "Record routes" }).click();
  await page.getByRole("button", { name: "Plot" }).click();
  await page.getByRole("group", { name: "Hit rates by cache size" }).getByText("96.0 %").waitFor();
  assert.ok(fake.asked.includes("POST /v1/moeflux/trace"));
}));

test("the model, its memory, options, log and a forecast are shown", () => withFake(async ({ page, fake }) => {
  await tab(page, "Model");
  await page.getByText("scripted_moe").waitFor();
  await page.getByRole("rowheader", { name: "Q4_K" }).waitFor();
  await page.getByRole("img", { name: /Memory: dense weights 668 MiB/ }).waitFor();
  await page.getByRole("rowheader", { name: "--ctx-size" }).waitFor();
  await page.getByRole("log").getByText("<b>not bold</b>").waitFor();
  await page.getByLabel("Drive, GB/s").fill("5");
  await page.getByRole("button", { name: "Forecast" }).click();
  await page.getByText("14.4").waitFor();
  const body = fake.bodies.find(([path]) => path === "/v1/moeflux/forecast")[1];
  assert.deepEqual(body, { ram_bytes: 16 * 2 ** 30, ram_gb_s: 40, drive_gb_s: 5 });
  await page.getByLabel("Client", { exact: false }).last().selectOption("curl");
}));

test("who has no admin key is told so", () => withFake(async ({ page }) => {
  await tab(page, "Model");
  await page.getByText("are for an admin key").waitFor();
  assert.equal(await page.getByRole("log").count(), 0);
}, { "/v1/moeflux/features": { admin: false, chats: false, mcp: false, residency: false, planner: true, version: "0.2.0" } }));

const axe = readFileSync(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

for (const colorScheme of ["light", "dark"]) {
  test(`all views are accessible in ${colorScheme}`, () => withFake(async ({ page }) => {
    // The policy of the page would refuse a script of another's, so that it is evaluated.
    const check = async (view) => {
      await page.evaluate(`if (!window.axe) { ${axe} }`);
      const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
      assert.deepEqual(violations.map((v) => `${view}: ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(" | ")}`), []);
    };
    await check("empty chat");
    await ask(page, "hello");
    await answered(page);
    await page.getByRole("button", { name: "Settings" }).click();
    await check("chat");
    await page.getByRole("button", { name: "Routes" }).click();
    await page.getByRole("button", { name: /^Token 3,/ }).click();
    await page.getByText("Position 42").waitFor();
    await check("experts");
    await tab(page, "Model");
    await page.getByText("scripted_moe").waitFor();
    await page.getByRole("button", { name: "Forecast" }).click();
    await page.getByText("14.4").waitFor();
    await check("model");
  }, {}, { colorScheme }));
}

test("a phone's width shows everything", () => withFake(async ({ page }) => {
  const fits = async (view) => {
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, document.getElementById("view").scrollWidth]);
    assert.ok(wide.every((w) => w <= 360), `${view}: ${wide}`);
  };
  await ask(page, "hello ".repeat(40));
  await answered(page);
  await fits("chat");
  await page.getByRole("button", { name: "Settings" }).click();
  await fits("settings");
  await page.getByRole("button", { name: "Chats" }).click();
  await page.getByRole("button", { name: "New chat" }).waitFor();
  await fits("list");
  await tab(page, "Experts");
  await page.locator("canvas.map").waitFor();
  await fits("experts");
  await tab(page, "Model");
  await page.getByText("scripted_moe").waitFor();
  await fits("model");
}, {}, { viewport: { width: 360, height: 740 } }));

test("the keyboard alone asks, goes through the views and back", () => withFake(async ({ page }) => {
  await page.keyboard.type("hello");
  await page.keyboard.press("Enter");
  await answered(page);
  for (let i = 0; i < 40; ++i) {
    await page.keyboard.press("Shift+Tab");
    if (await page.evaluate(() => document.activeElement.getAttribute("role") === "tab")) break;
  }
  await page.keyboard.press("ArrowRight");
  await page.getByRole("tab", { name: "Experts", selected: true }).waitFor();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("tab", { name: "Model", selected: true }).waitFor();
  await page.keyboard.press("ArrowRight");
  await page.getByRole("tab", { name: "Chat", selected: true }).waitFor();
  assert.equal(await page.locator("article").count(), 2);
}));

const kTools = { "/v1/moeflux/features": { admin: true, chats: false, mcp: true, residency: true, planner: true, version: "0.2.0" },
  "GET /v1/moeflux/mcp": { servers: [{ name: "tools.example/mcp", state: "ready", tools: [{ name: "add", description: "Adds <b>two</b> numbers", input_schema: { type: "object", properties: { a: { type: "number" } } } }] }] } };

test("a tool is run where the person allows it, and its result is text", () => withFakeOf(browser,
  (body) => ({ frames: body.messages.at(-1).role === "tool" ? framesOf(["It is ", "done."]) : framesOf([], { calls: [{ name: "add", arguments: '{"a": 1}' }] }) }),
  async ({ page, fake }) => {
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Offer the server's tools").check();
    await ask(page, "add");
    await page.getByRole("button", { name: "Run", exact: true }).waitFor();
    assert.equal(fake.asked.includes("POST /v1/moeflux/mcp"), false);
    await page.getByRole("button", { name: "Run", exact: true }).click();
    await page.getByText("It is done.").waitFor();
    assert.equal(await page.locator(".call script, .call img").count(), 0);
    const [, called] = fake.bodies.find(([path]) => path === "/v1/moeflux/mcp");
    assert.deepEqual(called, { server: "tools.example/mcp", tool: "add", arguments: { a: 1 } });
    const [, second] = fake.bodies.at(-1);
    assert.equal(second.messages.at(-1).content, "<script>window.bad=1</script>42");
    await answered(page);
    await ask(page, "again");
    await page.getByRole("button", { name: "Refuse" }).last().click();
    await page.waitForFunction(() => document.querySelectorAll("article.assistant").length === 4);
    assert.match(fake.bodies.at(-1)[1].messages.at(-1).content, /did not allow/);
    const runs = () => fake.asked.filter((one) => one === "POST /v1/moeflux/mcp").length;
    assert.equal(runs(), 1);
    await answered(page);
    await ask(page, "always");
    await page.getByRole("button", { name: "Always run this tool" }).last().click();
    await page.waitForFunction(() => document.querySelectorAll("article.assistant").length === 6);
    await answered(page);
    await ask(page, "once more");
    await page.waitForFunction(() => document.querySelectorAll("article.assistant").length === 8);
    assert.equal(runs(), 3);
  }, { ...answers, ...kTools, "POST /v1/moeflux/mcp": { content: "<script>window.bad=1</script>42", is_error: false, truncated: false } }));
