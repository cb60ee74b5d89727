// A headless browser of the system for tests: pages that fail on foreign requests, errors of
// scripts and whatever the policy refuses.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const kPaths = [process.env.MOEFLUX_TEST_BROWSER, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function openBrowser() {
  const executablePath = kPaths.find((path) => path && existsSync(path));
  assert.ok(executablePath, "no Chromium (tools/install_deps.sh test)");
  return chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
}

/** A page of its own context, and `check()`, which says what must not have happened. */
export async function openPage(browser, address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 800 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  const foreign = [];
  const problems = [];
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(address) && !/^(data|blob):/.test(url)) foreign.push(url);
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (line) => {
    if (line.type() === "error" && /Content Security Policy|Refused/.test(line.text())) problems.push(line.text());
  });
  await page.goto(`${address}/`);
  await page.getByRole("textbox", { name: "Message" }).waitFor();
  const check = () => {
    assert.deepEqual(foreign, [], "requests to other origins");
    assert.deepEqual(problems, [], "errors in the page");
  };
  return { page, context, check };
}

export async function ask(page, text) {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** Waits until the last answer is whole. */
export async function answered(page) {
  await page.getByRole("button", { name: "Send" }).waitFor({ timeout: 60_000 });
  return page.locator("article.assistant").last();
}
