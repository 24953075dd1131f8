// Marks words where they stand, as a painter does over a text: what is drawn stays as it is. Where the browser
// cannot do that, nothing is marked.

import { finderOf } from "../../core/text_search";

const ALL = "found";
const ONE = "found-one";
/** What lies in different ones of these does not make a word together. */
const APART = "p, li, td, th, h1, h2, h3, h4, h5, h6, pre, blockquote, div, summary, button, dd, dt";
const NOT_READ = "button:not(.fold), .acts, .unseen";

function textsIn(node: Element): Text[] {
  const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
  const found: Text[] = [];
  while (walker.nextNode()) {
    const text = walker.currentNode as Text;
    if (!text.parentElement?.closest(NOT_READ)) found.push(text);
  }
  return found;
}

/** Where the words stand in what is drawn of a message, however it is divided there. */
function rangesIn(node: Element, find: ReturnType<typeof finderOf>): Range[] {
  const pieces: { text: Text; start: number }[] = [];
  let whole = "";
  let around: Element | null = null;
  for (const text of textsIn(node)) {
    const block = text.parentElement?.closest(APART) ?? null;
    if (block !== around) whole += "\n";
    around = block;
    pieces.push({ text, start: whole.length });
    whole += text.data;
  }
  const placeOf = (offset: number) => pieces.findLast(({ start }) => start <= offset);
  return find(whole).flatMap(([start, end]) => {
    const [first, last] = [placeOf(start), placeOf(end - 1)];
    if (!first || !last) return [];
    const range = new Range();
    range.setStart(first.text, start - first.start);
    range.setEnd(last.text, Math.min(end - last.start, last.text.length));
    return [range];
  });
}

export class Marking {
  private readonly find: ReturnType<typeof finderOf>;

  constructor(query: string) {
    this.find = finderOf(query);
  }

  /** Where the words are in what is drawn of a message, in reading order. */
  rangesIn(node: Element): Range[] {
    return rangesIn(node, this.find);
  }

  /** Mark the words in all of `nodes`. */
  paint(nodes: readonly Element[]): void {
    put(ALL, nodes.flatMap((node) => this.rangesIn(node)));
  }

  /** Mark one of them more than the others. */
  point(range: Range | undefined): void {
    put(ONE, range ? [range] : [], 1);
  }

  clear(): void {
    put(ALL, []);
    put(ONE, []);
  }
}

function put(name: string, ranges: readonly Range[], priority = 0): void {
  if (typeof Highlight === "undefined") return;
  if (!ranges.length) return void CSS.highlights.delete(name);
  const highlight = new Highlight(...ranges);
  highlight.priority = priority;
  CSS.highlights.set(name, highlight);
}
