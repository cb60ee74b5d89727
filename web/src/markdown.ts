// Markdown of answers as inert HTML: no raw HTML, no images from anywhere, no scripts in links, and
// a bound on what is parsed. Blocks before the last one are finished, so a stream renders the last.
import MarkdownIt from "markdown-it";
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import temml from "temml";

for (const [name, language] of Object.entries({
  bash, cpp, css, diff, go, java, javascript, json, python, rust, sql, typescript, xml, yaml })) {
  hljs.registerLanguage(name, language);
}

// More than this in one block is shown as plain text: parsers may take long for it.
export const kBlockMax = 50_000;
const kHighlightMax = 20_000;
const kMathMax = 2_000;

const markdown = new MarkdownIt({ html: false, linkify: false, typographer: false, maxNesting: 30 });
const escape = markdown.utils.escapeHtml;

function math(source: string, display: boolean): string {
  if (source.length > kMathMax) return `<code>${escape(source)}</code>`;
  try {
    // The policy of the page lets no style attribute in; classes say the same where it matters.
    const html = temml.renderToString(source, { displayMode: display, throwOnError: true, trust: false, maxExpand: 100, maxSize: [20, 20] });
    return html.replace(/ style="[^"]*"/g, "");
  } catch {
    return `<code>${escape(source)}</code>`;
  }
}

/** The end of maths that begins at `at`: [open, close] and its closing's place, or nothing. */
function mathAt(text: string, at: number): { open: string; close: string; end: number } | null {
  const pairs: [string, string][] = [["$$", "$$"], ["\\[", "\\]"], ["\\(", "\\)"], ["$", "$"]];
  for (const [open, close] of pairs) {
    if (!text.startsWith(open, at)) continue;
    const from = at + open.length;
    const end = text.slice(from, from + kMathMax + 1).indexOf(close);
    if (end <= 0) return null;
    const inside = text.slice(from, from + end);
    // "$5 and $6" are prices: a dollar is maths where no space is within it and no digit behind.
    if (open === "$" && (/^\s|\s$|\n\n/.test(inside) || /[0-9]/.test(text[from + end + 1] ?? ""))) return null;
    return { open, close, end: from + end };
  }
  return null;
}

markdown.inline.ruler.before("escape", "math", (state, silent) => {
  const first = state.src.charCodeAt(state.pos);
  if (first !== 0x24 && first !== 0x5c) return false;
  const found = mathAt(state.src, state.pos);
  if (!found || found.end > state.posMax) return false;
  if (!silent) {
    const token = state.push("math", "", 0);
    token.content = state.src.slice(state.pos + found.open.length, found.end);
    token.markup = found.open;
  }
  state.pos = found.end + found.close.length;
  return true;
});
markdown.renderer.rules.math = (tokens, i) =>
  math(tokens[i].content, tokens[i].markup === "$$" || tokens[i].markup === "\\[");

// An image would tell its server who reads the answer.
markdown.renderer.rules.image = (tokens, i) => {
  const source = String(tokens[i].attrGet("src") ?? "");
  return `<span class="image">[image: ${escape(tokens[i].content || "untitled")}] ${escape(source.slice(0, 200))}</span>`;
};
markdown.renderer.rules.link_open = (tokens, i, options, _env, self) => {
  tokens[i].attrSet("rel", "noopener noreferrer nofollow");
  tokens[i].attrSet("target", "_blank");
  return self.renderToken(tokens, i, options);
};
markdown.validateLink = (url) => /^(https?:|mailto:|#)/i.test(url.trim());
for (const cell of ["th_open", "td_open"]) {
  markdown.renderer.rules[cell] = (tokens, i, options, _env, self) => {
    const style = tokens[i].attrGet("style");
    const side = style ? /text-align:(left|center|right)/.exec(String(style)) : null;
    tokens[i].attrs = side ? [["class", `to-${side[1]}`]] : [];
    return self.renderToken(tokens, i, options);
  };
}
markdown.renderer.rules.table_open = () => '<div class="table" tabindex="0" role="group" aria-label="Table"><table>';
markdown.renderer.rules.table_close = () => "</table></div>";

function code(text: string, info: string, whole: boolean): string {
  const language = info.trim().split(/\s+/)[0].toLowerCase();
  const known = whole && text.length <= kHighlightMax && hljs.getLanguage(language);
  const html = known ? hljs.highlight(text, { language, ignoreIllegals: true }).value : escape(text);
  return `<div class="code"><div class="code-head"><span>${escape(language.slice(0, 40))}</span>` +
    `<button type="button" class="copy">Copy</button></div><pre tabindex="0"><code>${html}</code></pre></div>`;
}
markdown.renderer.rules.fence = (tokens, i, _options, env) => code(tokens[i].content, tokens[i].info, env?.whole !== false);
markdown.renderer.rules.code_block = (tokens, i) => code(tokens[i].content, "", false);

/** HTML of a block. `whole` false: it is still being written, and is not coloured. */
export function renderBlock(source: string, whole: boolean): string {
  if (source.length > kBlockMax) return `<pre class="plain" tabindex="0">${escape(source)}</pre>`;
  try {
    return markdown.render(source, { whole });
  } catch {
    return `<pre class="plain" tabindex="0">${escape(source)}</pre>`;
  }
}

const isFence = (line: string) => /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];
const isItem = (line: string) => /^ {0,3}([-*+]|\d{1,9}[.)])\s/.test(line);

/** Finds ends of blocks in a text that grows, each line once. */
export class BlockSplitter {
  readonly blocks: string[] = [];
  /** Behind the last block that is finished. */
  tail = "";
  private seen = 0;        // characters of the tail whose lines are known
  private fence = "";      // of the code that is open
  private inMath = false;
  private isList = false;  // the tail is one
  private blank = false;   // the line before

  /** Takes what follows the text so far. */
  add(piece: string): void {
    this.tail += piece;
    for (;;) {
      const end = this.tail.indexOf("\n", this.seen);
      if (end < 0) return;
      this.take(this.tail.slice(this.seen, end), end + 1);
    }
  }

  private take(line: string, next: number): void {
    const fence = isFence(line);
    const inCode = this.fence !== "";
    // A blank line ends a block, unless what follows belongs to a list or to code in it.
    if (this.blank && !inCode && !this.inMath && line.trim() !== "" && !/^(\s{2,}|\t)/.test(line) &&
        !(this.isList && isItem(line))) {
      this.cut(this.seen);
      next -= this.cutAt;
    }
    if (this.seen === 0) this.isList = isItem(line);
    if (inCode) {
      if (fence && fence[0] === this.fence[0] && fence.length >= this.fence.length && /^ {0,3}[`~]+\s*$/.test(line)) this.fence = "";
    } else if (fence) {
      this.fence = fence;
    } else if ((line.match(/\$\$/g)?.length ?? 0) % 2 === 1) {
      this.inMath = !this.inMath;
    }
    this.blank = line.trim() === "" && this.fence === "";
    if (this.blank && this.inMath) this.inMath = false;  // no maths has an empty line
    this.seen = next;
  }

  private cutAt = 0;
  private cut(at: number): void {
    this.blocks.push(this.tail.slice(0, at));
    this.tail = this.tail.slice(at);
    this.cutAt = at;
    this.seen = 0;
  }
}
