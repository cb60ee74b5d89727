// Imports a module of the page's source, compiled as the build does it.
import { build } from "esbuild";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const source = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "src");

export async function load(name) {
  const { outputFiles } = await build({
    entryPoints: [join(source, name)], bundle: true, write: false, format: "esm", platform: "neutral",
    mainFields: ["module", "main"], conditions: ["import"], jsx: "automatic", jsxImportSource: "preact" });
  return import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`);
}
