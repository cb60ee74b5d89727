// Streams an answer of 10,000 tokens and reports how long the page's frames took:
//
//     node web/tests/browser/frames.mjs [TOKENS] [TOKENS_A_SECOND]
//
// Fails where a frame took 50 ms of the page's own thread or more.
import { answered, ask, openBrowser, openPage } from "./browser.mjs";
import { Fake, framesOf } from "./fake.mjs";

const tokens = Number(process.argv[2] ?? 10_000);
const rate = Number(process.argv[3] ?? 500);
const kParts = ["A paragraph of some words with **bold** and `code`, which ends here.\n\n", "- an item of a list\n", "- another one\n\n",
  "```python\ndef f(x):\n    return x + 1\n```\n\n", "| a | b |\n|---|---|\n| 1 | 2 |\n\n", "Maths $e^{i\\pi} = -1$ in a line.\n\n"];
const pieces = [];
for (let i = 0; pieces.length < tokens; ++i) pieces.push(...kParts[i % kParts.length].match(/\S+\s*|\s+/g));
pieces.length = tokens;

const fake = new Fake(() => ({ frames: framesOf(pieces) }));
// In groups, as timers of a millisecond are not exact.
fake.chat = async function chat(request, response, body) {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  const { frames } = await this.script(body);
  const began = performance.now();
  for (let next = 0; next < frames.length; await new Promise((resolve) => setTimeout(resolve, 5))) {
    const due = Math.min(frames.length, Math.ceil(((performance.now() - began) / 1000) * rate));
    for (; next < due; ++next) response.write(`id: ${next}\ndata: ${JSON.stringify(frames[next])}\n\n`);
  }
  response.end("data: [DONE]\n\n");
};
await fake.start();
const browser = await openBrowser();
const { page } = await openPage(browser, fake.address);
await page.evaluate(() => {
  window.gaps = [];
  let last = performance.now();
  const tick = (now) => {
    window.gaps.push(now - last);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
});
await browser.startTracing(page, { categories: ["devtools.timeline", "disabled-by-default-devtools.timeline"] });
await ask(page, "go");
await page.getByRole("button", { name: "Stop" }).waitFor();
await page.getByRole("button", { name: "Send" }).waitFor({ timeout: 600_000 });
await answered(page);
const gaps = await page.evaluate(() => window.gaps);
gaps.sort((a, b) => a - b);
const at = (share) => gaps[Math.floor(share * (gaps.length - 1))].toFixed(1);
console.log(`${tokens} tokens, ${gaps.length} frames: median ${at(0.5)} ms, 99 % ${at(0.99)} ms, longest ${at(1)} ms on the clock`);

const { traceEvents } = JSON.parse(await browser.stopTracing());
const thread = traceEvents.find((one) => one.name === "thread_name" && one.args.name === "CrRendererMain");
// Time of the thread, so that other programs of the machine do not count.
const tasks = traceEvents.filter((one) => one.name === "RunTask" && one.tid === thread.tid && one.pid === thread.pid && one.tdur !== undefined)
  .map((one) => one.tdur / 1000);
const long = tasks.filter((ms) => ms >= 50).length;
const longest = tasks.reduce((most, ms) => Math.max(most, ms), 0);
console.log(`${tasks.length} tasks of the page's thread, longest ${longest.toFixed(1)} ms, ${long} of 50 ms or more`);
await browser.close();
fake.stop();
process.exit(long > 0 || tasks.length === 0 ? 1 : 0);
