// Draws the pictures of docs/page: each view over a scripted server, in light and dark.
//
//     node web/tests/browser/screenshots.mjs
import { mkdirSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { answered, ask, openBrowser, openPage } from "./browser.mjs";
import { Fake, framesOf } from "./fake.mjs";
import { words } from "./harness.mjs";
import { answers } from "./telemetry.mjs";

const out = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..", "docs", "page");
const kAnswer = "A router gives each token **two of 64 experts**; the sum of their outputs is weighted by $p_i = e^{s_i} / \\sum_j e^{s_j}$:\n\n" +
  "```python\ndef route(scores, k=2):\n    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:k]\n    return best\n```\n\n" +
  "| tier | bytes/s |\n|---|--:|\n| GPU | 1.0e12 |\n| memory | 5.0e10 |\n| drive | 3.0e9 |\n";

mkdirSync(out, { recursive: true });
const browser = await openBrowser();
for (const colorScheme of ["light", "dark"]) {
  const fake = await new Fake(() => ({ frames: framesOf(words(kAnswer), { reasoning: words("The person asks how tokens find experts.") }) }), answers).start();
  const { page, context } = await openPage(browser, fake.address, { colorScheme, viewport: { width: 960, height: 640 } });
  const shoot = async (name) => {
    const path = join(out, `${name}-${colorScheme}.png`);
    await page.screenshot({ path });
    console.log(`${path}: ${statSync(path).size} bytes`);
  };
  await ask(page, "How does a token find its experts?");
  await answered(page);
  await shoot("chat");
  await page.getByRole("tab", { name: "Experts" }).click();
  await page.waitForFunction(() => [...document.querySelectorAll(".charts .solid")].length === 4 &&
    [...document.querySelectorAll(".charts .solid")].every((path) => path.getAttribute("d").length > 300));
  await shoot("experts");
  await page.getByRole("tab", { name: "Model" }).click();
  await page.getByText("scripted_moe").waitFor();
  await shoot("model");
  await context.close();
  fake.stop();
}
await browser.close();
