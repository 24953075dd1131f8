// Highlight words with the CSS highlight API, without changing the document. Browsers without that API show no
// highlights.

import { createFinder } from "../../core/text_search";

const ALL_MATCHES = "found";
const CURRENT_MATCH = "found-one";
/** A match does not span two of these elements. */
const BLOCK_SELECTOR = "p, li, td, th, h1, h2, h3, h4, h5, h6, pre, blockquote, div, summary, button, dd, dt";
const SKIPPED_SELECTOR = "button:not(.fold), .message-actions, .visually-hidden";

function textNodes(node: Element): Text[] {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const nodes: Text[] = [];
  while (walker.nextNode()) {
    const text = walker.currentNode as Text;
    if (!text.parentElement?.closest(SKIPPED_SELECTOR)) nodes.push(text);
  }
  return nodes;
}

/** Return the ranges of the matches in a rendered message, however it is divided into text nodes. */
function findRanges(node: Element, find: ReturnType<typeof createFinder>): Range[] {
  const pieces: { text: Text; start: number }[] = [];
  let whole = "";
  let lastBlock: Element | null = null;
  for (const text of textNodes(node)) {
    const block = text.parentElement?.closest(BLOCK_SELECTOR) ?? null;
    if (block !== lastBlock) whole += "\n";
    lastBlock = block;
    pieces.push({ text, start: whole.length });
    whole += text.data;
  }
  const pieceAt = (offset: number) => pieces.findLast(({ start }) => start <= offset);
  return find(whole).flatMap(([start, end]) => {
    const [first, last] = [pieceAt(start), pieceAt(end - 1)];
    if (!first || !last) return [];
    const range = new Range();
    range.setStart(first.text, start - first.start);
    range.setEnd(last.text, Math.min(end - last.start, last.text.length));
    return [range];
  });
}

export class MatchHighlighter {
  private readonly find: ReturnType<typeof createFinder>;

  constructor(query: string) {
    this.find = createFinder(query);
  }

  /** Return the ranges of the matches in a rendered message, in reading order. */
  rangesIn(node: Element): Range[] {
    return findRanges(node, this.find);
  }

  /** Highlight the matches in all of `nodes`. */
  highlightAll(nodes: readonly Element[]): void {
    setHighlight(ALL_MATCHES, nodes.flatMap((node) => this.rangesIn(node)));
  }

  /** Highlight the current match. */
  highlightCurrent(range: Range | undefined): void {
    setHighlight(CURRENT_MATCH, range ? [range] : [], 1);
  }

  clear(): void {
    setHighlight(ALL_MATCHES, []);
    setHighlight(CURRENT_MATCH, []);
  }
}

function setHighlight(name: string, ranges: readonly Range[], priority = 0): void {
  if (typeof Highlight === "undefined") return;
  if (!ranges.length) return void CSS.highlights.delete(name);
  const highlight = new Highlight(...ranges);
  highlight.priority = priority;
  CSS.highlights.set(name, highlight);
}
