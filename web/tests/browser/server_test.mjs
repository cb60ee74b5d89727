// The page of `moeflux serve` with the embedded model: MOEFLUX names the program.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answered, ask, openBrowser, openPage } from "./browser.mjs";

const program = process.env.MOEFLUX ?? "build/release/bin/moeflux";
let browser;
before(async () => { browser = await openBrowser(); });
after(() => browser.close());

async function serve(...options) {
  const child = spawn(program, ["serve", "--port", "0", ...options], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  const address = await new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", () => reject(new Error(`the server ended: ${said}`)));
    child.stderr.on("data", (piece) => {
      said += piece;
      const found = said.match(/the page: (http:\S+)\n/);
      if (found) resolve(found[1]);
    });
  });
  return { address, stop: () => { child.removeAllListeners("exit"); child.kill("SIGKILL"); } };
}

async function withServer(options, use) {
  const server = await serve(...options);
  try {
    const opened = await openPage(browser, server.address);
    try {
      await use({ ...opened, address: server.address });
      opened.check();
    } finally {
      await opened.context.close();
    }
  } finally {
    server.stop();
  }
}

test("the real server answers in the page, which shows what that took", () => withServer([], async ({ page }) => {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Most tokens").fill("24");
  await page.getByLabel("Seed").fill("7");
  await ask(page, "Once upon a time");
  const answer = await answered(page);
  assert.match(await answer.locator(".stats").innerText(), /24 tokens/);
  const first = await answer.locator(".markdown").innerText();
  assert.ok(first.length > 10);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await page.getByText("2/2").waitFor();
  assert.equal(await (await answered(page)).locator(".markdown").innerText(), first);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForFunction((n) => document.querySelector("article.assistant .markdown").innerText.length > n, first.length);
  await answered(page);
}));

// The folder of tools/talking_model.py.
const kTalking = process.env.MOEFLUX_TEST_TALKING;
test("a model that talks answers right in the page, and remembers", { skip: !kTalking && "MOEFLUX_TEST_TALKING is not set" },
  () => withServer(["-m", join(kTalking ?? "", "moe.gguf"), "-c", "2048"], async ({ page }) => {
    await page.getByRole("button", { name: "Settings" }).click();
    await page.getByLabel("Temperature").fill("0");
    await page.getByLabel("Most tokens").fill("24");
    const say = async (text, answers) => {
      await ask(page, text);
      await page.locator("article.assistant").nth(answers - 1).locator(".stats").waitFor({ timeout: 600_000 });
      return (await answered(page)).locator(".markdown").innerText();
    };
    assert.match(await say("What is the capital of Japan?", 1), /Tokyo/);
    await page.getByRole("button", { name: "New chat" }).click();
    await page.getByLabel("Temperature").fill("0");
    await page.getByLabel("Most tokens").fill("24");
    await say("I have a cat. Her name is Daisy.", 1);
    assert.match(await say("What is the name of my cat?", 2), /Daisy/);
  }));

test("a reload in the middle of the real server's answer reads on", () => withServer([], async ({ page }) => {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Most tokens").fill("400");
  await page.getByLabel("Seed").fill("3");
  await ask(page, "The king had three daughters");
  await page.waitForFunction(() => (document.querySelector("article.assistant .markdown")?.innerText.length ?? 0) > 20);
  await page.reload();
  await page.locator("article.assistant").waitFor();
  const answer = await answered(page);
  await answer.locator(".stats").waitFor();
  assert.equal(await page.locator(".error").count(), 0);
}));

test("the policy is sent, and files have their types", async () => {
  const server = await serve("--api-key", "k");
  try {
    const index = await fetch(server.address, { headers: { accept: "text/html" } });
    assert.match(index.headers.get("content-security-policy"), /default-src 'none'.*connect-src 'self'.*frame-ancestors 'none'/);
    assert.equal(index.headers.get("x-content-type-options"), "nosniff");
    const text = await index.text();
    for (const [, path] of text.matchAll(/(?:src|href)="(\/page\/[^"]+)"/g)) {
      const file = await fetch(server.address + path);
      assert.equal(file.status, 200);
      assert.match(file.headers.get("cache-control"), /immutable/);
    }
    assert.equal((await fetch(`${server.address}/v1/models`)).status, 401);
    assert.match(await (await fetch(server.address)).text(), /moeflux is running/);
    assert.match(await (await fetch(`${server.address}/page/licences.txt`)).text(), /preact .*MIT/);
  } finally {
    server.stop();
  }
});

test("the real server's experts, routes, model and forecast are shown", () => withServer([], async ({ page }) => {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Most tokens").fill("12");
  await page.getByRole("tab", { name: "Experts" }).click();
  await page.getByRole("tab", { name: "Chat" }).click();
  await ask(page, "Once upon a time");
  await answered(page);
  await page.getByRole("button", { name: "Routes" }).click();
  await page.getByText(/on the GPU, \d+ in memory, \d+ on the drive alone/).waitFor();
  await page.locator("canvas.map").hover({ position: { x: 20, y: 5 } });
  await page.getByText(/Layer \d+, expert \d+: .*used \d+ times/).waitFor();
  await page.getByRole("button", { name: /^Token 2,/ }).click();
  await page.getByText(/Position \d+: /).waitFor();
  assert.ok(await page.getByRole("group", { name: "Experts of the token" }).locator("tbody tr").count() > 0);
  await page.getByRole("tab", { name: "Model" }).click();
  await page.getByRole("group", { name: "Formats of experts" }).waitFor();
  await page.getByRole("img", { name: /^Memory: / }).waitFor();
  await page.getByRole("rowheader", { name: "--port" }).waitFor();
  await page.getByRole("button", { name: "Forecast" }).click();
  await page.getByRole("group", { name: "Forecast" }).waitFor();
}));

// What a client of that snippet asks first; a snippet that is a command is run.
const kPython = process.env.MOEFLUX_TEST_CLIENTS ?? "build/clients/venv/bin/python";
const firstRequest = {
  "Claude Code": (text) => [`${text.match(/ANTHROPIC_BASE_URL=(\S+)/)[1]}/v1/messages`, text.match(/AUTH_TOKEN=(\S+)/)[1],
    { messages: [{ role: "user", content: "Hello" }], max_tokens: 8,
      model: text.match(/ANTHROPIC_MODEL='([^']+)'/)[1] }],
  "Codex": (text, key) => [`${text.match(/base_url="([^"]+)"/)[1]}/responses`, text.includes('env_key="MOEFLUX_KEY"') ? key : "none",
    { model: text.match(/model='([^']+)'/)[1], input: "Hello", max_output_tokens: 8 }],
  "Ollama": (text, key) => [`${text.match(/OLLAMA_HOST=(\S+)/)[1]}/api/chat`, key,
    { model: text.match(/run '([^']+)'/)[1], messages: [{ role: "user", content: "Hello" }], stream: false, options: { num_predict: 8 } }],
  "Open WebUI": (text) => [`${text.match(/API_BASE_URL=(\S+)/)[1].replace("host.docker.internal", "127.0.0.1")}/models`,
    text.match(/API_KEY=(\S+)/)[1], null],
};

async function paste(name, text, key) {
  if (name === "curl") return JSON.parse(execFileSync("sh", ["-c", text])).choices[0].message.content;
  if (name === "OpenAI's Python package") return execFileSync(kPython, ["-c", text], { encoding: "utf8" });
  const [url, bearer, body] = firstRequest[name](text, key);
  const answer = await fetch(url, {
    method: body ? "POST" : "GET", body: body && JSON.stringify(body),
    headers: { Authorization: `Bearer ${bearer}`, "Content-Type": "application/json" } });
  assert.equal(answer.status, 200, `${name}: ${await answer.text()}`);
  return text;
}

test("what the page says to paste works, with and without a key", async () => {
  assert.ok(existsSync(kPython), `no ${kPython} with openai's package: make test-all and tests/clients/run.py make it`);
  for (const key of [null, "a-key"]) {
    const server = await serve(...(key ? ["--api-key", key] : []));
    try {
      const { page, context, check } = key ? await enter(server.address, key) : await openPage(browser, server.address);
      await page.getByRole("option", { name: "fable-20m" }).waitFor({ state: "attached" });
      await page.getByRole("tab", { name: "Model" }).click();
      const choice = page.getByRole("combobox", { name: "Client" });
      const names = await choice.locator("option").allInnerTexts();
      assert.equal(names.length, 6);
      for (const name of names) {
        await choice.selectOption(name);
        const text = (await page.getByRole("region", { name: "Clients" }).locator("code").innerText()).replaceAll("YOUR_KEY", key ?? "");
        assert.ok((await paste(name, text, key)).length > 0, name);
      }
      check();
      await context.close();
    } finally {
      server.stop();
    }
  }
});

async function enter(address, key) {
  const opened = await openPage(browser, address);
  await opened.page.getByRole("textbox", { name: "Key" }).fill(key);
  await opened.page.getByRole("button", { name: "Use it" }).click();
  await opened.page.getByRole("option", { name: "fable-20m" }).waitFor({ state: "attached" });
  return opened;
}

test("chats that the server keeps are there in another browser, for their key alone", async () => {
  const folder = mkdtempSync(join(tmpdir(), "moeflux-chats-"));
  const options = ["--api-key", "anna", "--api-key", "bert", "--admin-key", "root", "--states", folder, "--keep-chats"];
  try {
    const question = "A word for Anna alone";
    const first = await serve(...options);
    const anna = await enter(first.address, "anna");
    await anna.page.getByRole("button", { name: "Settings" }).click();
    await anna.page.getByLabel("Most tokens").fill("8");
    const saved = anna.page.waitForResponse((response) =>
      response.request().method() === "POST" && response.url().includes("/v1/moeflux/chats/") && response.ok() &&
      response.request().postData().includes('"assistant"'));
    await ask(anna.page, question);
    await answered(anna.page);
    await saved;
    await anna.page.getByRole("tab", { name: "Experts" }).click();
    await anna.page.getByText("are for an admin key").or(anna.page.getByText("The map is for an admin key")).first().waitFor();
    anna.check();
    await anna.context.close();
    first.stop();

    const second = await serve(...options);
    for (const [key, count] of [["bert", 0], ["root", 0], ["anna", 1]]) {
      const { page, context, check } = await enter(second.address, key);
      if (count > 0) await page.getByRole("button", { name: question }).first().waitFor();
      await page.waitForTimeout(300);
      assert.equal(await page.getByRole("button", { name: question }).count() > 0, count > 0, key);
      check();
      await context.close();
    }
    second.stop();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("tools of a hostile MCP server are listed as text", async () => {
  const hostile = "<img src=x onerror='window.bad=1'><script>window.bad=2</script>";
  const results = {
    initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "t", version: "1" } },
    "tools/list": { tools: [{ name: "add", description: hostile, inputSchema: { type: "object" } }] },
  };
  const asked = [];
  const tools = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => { body += piece; });
    request.on("end", () => {
      const { id, method } = JSON.parse(body || "{}");
      asked.push([method, request.headers.authorization]);
      response.writeHead(id === undefined ? 202 : 200, { "content-type": "application/json" });
      response.end(id === undefined ? "" : JSON.stringify({ jsonrpc: "2.0", id, result: results[method] ?? {} }));
    });
  });
  await new Promise((resolve) => { tools.listen(0, "127.0.0.1", resolve); });
  try {
    await withServer(["--mcp", `http://127.0.0.1:${tools.address().port}/mcp`], async ({ page }) => {
      await page.getByRole("button", { name: "Settings" }).click();
      await page.getByLabel("Offer the server's tools").check();
      await page.getByText(hostile).waitFor();
      assert.equal(await page.evaluate(() => window.bad), undefined);
    });
    assert.ok(asked.some(([method]) => method === "tools/list"), "nobody asked for tools");
    assert.ok(asked.every(([, authorization]) => authorization === undefined));
  } finally {
    tools.close();
  }
});
