// The page of `moeflux serve` with the embedded model: MOEFLUX names the program.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
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
