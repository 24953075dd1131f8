// Markdown as elements. Whatever a model writes, only harmless markup comes out; code is coloured once the
// colours are loaded, which they are only when there is code.

import DOMPurify from "dompurify";
import { Marked, type TokenizerAndRendererExtension, type Tokens } from "marked";
import { useEffect, useRef } from "preact/hooks";
import { BlockSplitter } from "../../core/markdown_blocks";
import { copyText } from "./copy";
import { modules } from "../app/lazy";
import { Steady } from "./memo";
import { s } from "../text/index";

const marked = new Marked({ gfm: true, breaks: false });
/** Formulas stay as they are written: \\(…\\), \\[…\\], $$…$$, and $…$ with something of a formula in it. */
const BLOCK_FORMULA = /^ {0,3}(?:\$\$[^]+?\$\$|\\\[[^]+?\\\])[ \t]*(?:\n|$)/;
const FORMULA = /^(?:\\\([^]+?\\\)|\\\[[^]+?\\\]|\$\$[^]+?\$\$|\$(?=\S)[^$\n]*[\\^_{][^$\n]*(?<=\S)\$(?!\d))/;
/** Signs that mean nothing in Markdown: a backslash before them is meant. */
const MEANT = /^\\[,;:%'"/=?@^()[\]]/;

const formula = (name: string, level: "block" | "inline", pattern: RegExp, begins: RegExp, tag: string): TokenizerAndRendererExtension => ({
  name, level,
  start: (text: string) => begins.exec(text)?.index,
  tokenizer: (text: string) => {
    const raw = pattern.exec(text)?.[0];
    return raw ? { type: name, raw } : undefined;
  },
  renderer: ({ raw }) => `<${tag} class="formula">${escape(raw.trim())}</${tag}>`,
});

marked.use({
  extensions: [
    formula("formulas", "block", BLOCK_FORMULA, /^ {0,3}(?:\$\$|\\\[)/m, "p"),
    formula("formula", "inline", FORMULA, /\\[([]|\$/, "span"),
  ],
  tokenizer: {
    escape(text: string) {
      const raw = MEANT.exec(text)?.[0];
      return raw ? { type: "escape", raw, text: raw } : false;
    },
  },
  renderer: {
    // A picture from elsewhere would tell that place who reads what: it becomes a link.
    image({ href, text }: Tokens.Image) {
      return /^(data:image\/|api\/files\/)/.test(href) ? false : `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
    html({ text }: Tokens.HTML | Tokens.Tag) {
      return escape(text);
    },
  },
});

// Set once: a configuration that is given with each call is read anew each time, which takes as long as the rest.
DOMPurify.setConfig({
  ALLOWED_TAGS: [
    "a", "b", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "input",
    "li", "ol", "p", "pre", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href", "src", "alt", "title", "class", "start", "align", "type", "checked", "disabled"],
  ALLOW_DATA_ATTR: false,
});

function escape(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign] ?? sign);
}

export function markup(text: string): string {
  return DOMPurify.sanitize(marked.parse(text, { async: false }));
}

function Block({ text, still }: { text: string; still: boolean; version: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const node = place.current;
    if (!node) return;
    for (const each of node.querySelectorAll("a")) {
      each.target = "_blank";
      each.rel = "noopener noreferrer";
    }
    for (const each of node.querySelectorAll<HTMLElement>("table")) each.tabIndex = 0;
    if (still) for (const each of node.querySelectorAll<HTMLElement>("pre")) dress(each);
  });
  return <div class="block" ref={place} dangerouslySetInnerHTML={{ __html: markup(text) }} />;
}

/** Give a piece of code its copy button and its colours. */
function dress(pre: HTMLElement): void {
  const code = pre.querySelector("code");
  if (!code || pre.parentElement?.className === "code") return;
  pre.tabIndex = 0;
  const frame = document.createElement("div");
  frame.className = "code";
  pre.replaceWith(frame);
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = s.copy;
  button.onclick = () => {
    void copyText(code.textContent ?? "").then((isCopied) => {
      if (!isCopied) return;
      button.textContent = s.copied;
      setTimeout(() => (button.textContent = s.copy), 1_500);
    });
  };
  frame.append(pre, button);
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1];
  // Without its colours, code can still be read.
  if (language) void modules.colours().then(({ colour }) => colour(code, language), () => undefined);
}

/** Text that may still grow: closed blocks are drawn once, only the last one again. */
export function Markdown({ text, live }: { text: string; live: boolean }) {
  const kept = useRef<{ splitter: BlockSplitter; text: string }>({ splitter: new BlockSplitter(), text: "" });
  if (!text.startsWith(kept.current.text)) kept.current = { splitter: new BlockSplitter(), text: "" };
  // While it is written, words appear whole.
  const shown = live ? text.slice(0, Math.max(text.lastIndexOf(" "), text.lastIndexOf("\n")) + 1) : text;
  const { splitter } = kept.current;
  const last = shown.length >= kept.current.text.length ? splitter.feed(shown) : splitter.feed(kept.current.text);
  kept.current.text = shown;
  return (
    <div class="markdown">
      {splitter.closed.map((block, place) => (
        <Steady key={place} version={`${block.length}`} draw={() => <Block text={block} still version="" />} />
      ))}
      {last.trim() && <Steady key="last" version={`${last.length} ${live}`} draw={() => <Block text={last} still={!live} version="" />} />}
    </div>
  );
}
