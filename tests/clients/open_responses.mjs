// Open Responses' compliance tests against a server, told as one line of JSON.
//
//     node --import tsx open_responses.mjs CHECKOUT URL KEY
//
// A model that tells stories calls no tool and comes to no end by itself. So requests with tools ask
// for a call, and others end with a sentence. All else is asked as the tests have it, and their own
// code judges the answers.
import { pathToFileURL } from "node:url";

const [checkout, baseUrl, apiKey] = process.argv.slice(2);

const LEFT_OUT = {
  "image-input": "images are not offered",
  "compact-response": "compaction is not offered",
  "compact-missing-model": "compaction is not offered",
};
const reasonOf = (test) =>
  test.transport === "websocket" ? "WebSocket is not offered" : LEFT_OUT[test.id];

const send = globalThis.fetch;
globalThis.fetch = (url, options) => {
  const body = JSON.parse(options.body);
  const help = body.tools ? { tool_choice: "required" } : { stop: ["."] };
  return send(url, { ...options, body: JSON.stringify({ ...body, ...help, seed: 1 }) });
};

const suite = await import(pathToFileURL(`${checkout}/src/lib/compliance-tests.ts`));
const { testTemplates, runAllTests } = suite.default ?? suite;
const config = {
  baseUrl,
  apiKey,
  model: "any",
  authHeaderName: "Authorization",
  useBearerPrefix: true,
  runtime: "server",
};
const wanted = testTemplates.filter((test) => !reasonOf(test));
const ids = new Set(wanted.map((test) => test.id));
// Revisions that know no third argument run all.
const results = (await runAllTests(config, () => {}, wanted)).filter((one) => ids.has(one.id));
const isSkipped = ({ status }) => status === "skipped";
console.log(JSON.stringify({
  ran: results.filter((one) => !isSkipped(one))
    .map(({ id, status, errors }) => ({ id, status, errors: errors ?? [] })),
  left_out: [
    ...testTemplates.filter(reasonOf).map((test) => ({ id: test.id, reason: reasonOf(test) })),
    ...results.filter(isSkipped).map(({ id, errors }) => ({ id, reason: errors?.[0] })),
  ],
}));
