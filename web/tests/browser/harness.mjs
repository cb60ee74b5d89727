// A page over a server of a script, closed and checked after its use.
import { openPage } from "./browser.mjs";
import { Fake } from "./fake.mjs";

export async function withFake(browser, script, use, answers = {}, options = {}) {
  const fake = await new Fake(script, answers).start();
  try {
    const opened = await openPage(browser, fake.address, options);
    try {
      await use({ fake, ...opened });
      opened.check();
    } finally {
      await opened.context.close();
    }
  } finally {
    fake.stop();
  }
}

export const words = (text) => text.match(/\S+\s*|\s+/g);
