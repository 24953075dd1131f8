// Render Markdown. Only harmless markup passes, whatever a model writes. The syntax highlighter is loaded when there
// is code.

import DOMPurify from "dompurify";
import { Marked, type TokenizerAndRendererExtension, type Tokens } from "marked";
import { useEffect, useRef } from "preact/hooks";
import { BlockSplitter } from "../../core/markdown_blocks";
import { copyText } from "./copy";
import { lazyModules } from "../app/lazy";
import { Memo } from "./memo";
import { s } from "../text/index";

const marked = new Marked({ gfm: true, breaks: false });
/** Formulas stay as written: \\(…\\), \\[…\\], $$…$$, and $…$ if it contains formula characters. */
const BLOCK_FORMULA = /^ {0,3}(?:\$\$[^]+?\$\$|\\\[[^]+?\\\])[ \t]*(?:\n|$)/;
const FORMULA = /^(?:\\\([^]+?\\\)|\\\[[^]+?\\\]|\$\$[^]+?\$\$|\$(?=\S)[^$\n]*[\\^_{][^$\n]*(?<=\S)\$(?!\d))/;
/** Characters without a meaning in Markdown: a backslash before them is literal. */
const ESCAPED_CHARACTER = /^\\[,;:%'"/=?@^()[\]]/;

const formulaExtension = (name: string, level: "block" | "inline", pattern: RegExp, startPattern: RegExp, tag: string): TokenizerAndRendererExtension => ({
  name, level,
  start: (text: string) => startPattern.exec(text)?.index,
  tokenizer: (text: string) => {
    const raw = pattern.exec(text)?.[0];
    return raw ? { type: name, raw } : undefined;
  },
  renderer: ({ raw }) => `<${tag} class="formula">${escapeHtml(raw.trim())}</${tag}>`,
});

marked.use({
  extensions: [
    formulaExtension("formulas", "block", BLOCK_FORMULA, /^ {0,3}(?:\$\$|\\\[)/m, "p"),
    formulaExtension("formula", "inline", FORMULA, /\\[([]|\$/, "span"),
  ],
  tokenizer: {
    escape(text: string) {
      const raw = ESCAPED_CHARACTER.exec(text)?.[0];
      return raw ? { type: "escape", raw, text: raw } : false;
    },
  },
  renderer: {
    // A remote image would tell its host who reads what, so it becomes a link.
    image({ href, text }: Tokens.Image) {
      return /^(data:image\/|api\/files\/)/.test(href) ? false : `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`;
    },
    html({ text }: Tokens.HTML | Tokens.Tag) {
      return escapeHtml(text);
    },
  },
});

// Set once: DOMPurify parses a configuration passed with a call each time, which doubles the cost.
DOMPurify.setConfig({
  ALLOWED_TAGS: [
    "a", "b", "blockquote", "br", "code", "del", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "input",
    "li", "ol", "p", "pre", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href", "src", "alt", "title", "class", "start", "align", "type", "checked", "disabled"],
  ALLOW_DATA_ATTR: false,
});

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[character] ?? character);
}

export function renderMarkdown(text: string): string {
  return DOMPurify.sanitize(marked.parse(text, { async: false }));
}

function Block({ text, isFinal }: { text: string; isFinal: boolean; version: string }) {
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const node = container.current;
    if (!node) return;
    for (const each of node.querySelectorAll("a")) {
      each.target = "_blank";
      each.rel = "noopener noreferrer";
    }
    for (const each of node.querySelectorAll<HTMLElement>("table")) each.tabIndex = 0;
    if (isFinal) for (const each of node.querySelectorAll<HTMLElement>("pre")) decorateCode(each);
  });
  return <div class="block" ref={container} dangerouslySetInnerHTML={{ __html: renderMarkdown(text) }} />;
}

/** Add a copy button and syntax highlighting to a code block. */
function decorateCode(pre: HTMLElement): void {
  const code = pre.querySelector("code");
  if (!code || pre.parentElement?.className === "code") return;
  pre.tabIndex = 0;
  const wrapper = document.createElement("div");
  wrapper.className = "code";
  pre.replaceWith(wrapper);
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
  wrapper.append(pre, button);
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1];
  // Code without highlighting is still readable.
  if (language) void lazyModules.syntaxHighlight().then(({ highlight }) => highlight(code, language), () => undefined);
}

/** Render text that may still grow: closed blocks once, only the last one again. */
export function Markdown({ text, live }: { text: string; live: boolean }) {
  const state = useRef<{ splitter: BlockSplitter; text: string }>({ splitter: new BlockSplitter(), text: "" });
  if (!text.startsWith(state.current.text)) state.current = { splitter: new BlockSplitter(), text: "" };
  // While the text grows, show whole words.
  const shown = live ? text.slice(0, Math.max(text.lastIndexOf(" "), text.lastIndexOf("\n")) + 1) : text;
  const { splitter } = state.current;
  const last = shown.length >= state.current.text.length ? splitter.feed(shown) : splitter.feed(state.current.text);
  state.current.text = shown;
  return (
    <div class="markdown">
      {splitter.closed.map((block, index) => (
        <Memo key={index} version={`${block.length}`} render={() => <Block text={block} isFinal version="" />} />
      ))}
      {last.trim() && <Memo key="last" version={`${last.length} ${live}`} render={() => <Block text={last} isFinal={!live} version="" />} />}
    </div>
  );
}
