// Bundles the page into build/web: index.html, a script and a style sheet with a hash in their
// names, and the licences of all packages inside; each compressed. files.txt lists them for CMake.
// packages.txt lists the packages inside, "NAME VERSION LICENCE" a line, for the list of a release.
// With --check it writes nothing, and fails where build/web has another page than the source.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, existsSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "build", "web");
const kBytesMax = 250_000;

/** The packages that the bundle has something of, by esbuild's list of inputs. */
function packagesOf(inputs) {
  const names = new Set();
  for (const input of Object.keys(inputs)) {
    const found = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
    if (found) names.add(found[1]);
  }
  return [...names].sort();
}

function licenceOf(name) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name}: no licence file in ${relative(here, folder)}`);
  const text = readFileSync(join(folder, file), "utf8").trim();
  return { line: `${name} ${version} ${license}\n`, text: `${name} ${version} (${license})\n\n${text}\n` };
}

const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  bundle: true,
  minify: true,
  write: false,
  metafile: true,
  outdir: "out",
  target: ["es2021"],
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
});

const files = [];
const named = {};
for (const file of result.outputFiles) {
  const extension = file.path.endsWith(".css") ? "css" : "js";
  const hash = createHash("sha256").update(file.contents).digest("hex").slice(0, 12);
  const name = `app-${hash}.${extension}`;
  named[extension] = name;
  files.push([name, extension === "css" ? "text/css" : "text/javascript", file.contents]);
}
const index = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("APP.js", named.js)
  .replace("APP.css", named.css);
files.unshift(["index.html", "text/html", index]);
const licences = packagesOf(result.metafile.inputs).map(licenceOf);
files.push(["licences.txt", "text/plain", licences.map((one) => one.text).join(`\n${"-".repeat(80)}\n\n`)]);

const list = files.map(([name, type]) => `${name} ${type}\n`).join("");
const compressed = files.map(([name, , contents]) => [`${name}.gz`, gzipSync(contents, { level: 9 })]);
const total = compressed.reduce((sum, [name, bytes]) => sum + (name.startsWith("licences") ? 0 : bytes.length), 0);
if (total >= kBytesMax) {
  console.error(`build.mjs: the page has ${total} bytes, expected less than ${kBytesMax}`);
  process.exit(1);
}
const isSame = (name, bytes) => existsSync(join(out, name)) && readFileSync(join(out, name)).equals(Buffer.from(bytes));
const changed = [...compressed, ["packages.txt", licences.map((one) => one.line).join("")], ["files.txt", list]].filter(([name, bytes]) => !isSame(name, bytes));
if (process.argv.includes("--check")) {
  if (changed.length > 0) console.error(`build.mjs: ${changed[0][0]} of build/web is not that of web/; make web`);
  process.exit(changed.length > 0 ? 1 : 0);
}

mkdirSync(out, { recursive: true });
const wanted = new Set(compressed.map(([name]) => name));
for (const old of readdirSync(out)) {
  if (old.endsWith(".gz") && !wanted.has(old)) rmSync(join(out, old));
}
// What differs alone is written, so that CMake embeds nothing anew without need; the list comes last.
for (const [name, bytes] of changed) writeFileSync(join(out, name), bytes);
console.log(`the page: ${(total / 1024).toFixed(0)} KiB compressed`);
