// Markdown that is still being written, cut where nothing that follows can change what came before: the closed
// blocks are drawn once, only the last one is drawn again.

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const LISTED = /^\s*(?:[-*+]|\d{1,9}[.)])\s|^\s{2,}\S/;

export class BlockSplitter {
  /** Blocks that will not change any more. */
  readonly closed: string[] = [];
  private seen = 0;
  private fence = "";
  private line = "";
  private block: string[] = [];

  /** The block under way, given the whole text so far, which may only have grown. */
  feed(text: string): string {
    for (const piece of text.slice(this.seen).split(/(?<=\n)/)) {
      this.line += piece;
      if (this.line.endsWith("\n")) {
        this.take(this.line);
        this.line = "";
      }
    }
    this.seen = text.length;
    return this.block.join("") + this.line;
  }

  private take(line: string): void {
    const mark = FENCE.exec(line)?.[1];
    if (this.fence) {
      this.block.push(line);
      if (mark && mark[0] === this.fence[0] && mark.length >= this.fence.length && line.trim() === mark) this.fence = "";
      return;
    }
    if (mark) this.fence = mark;
    // A blank line ends a block, unless it may lie inside a list, a table's note or a quotation.
    const blank = line.trim() === "";
    if (!blank && this.block.length && this.block.at(-1)?.trim() === "" && !this.goesOn(line)) this.close();
    this.block.push(line);
  }

  private goesOn(line: string): boolean {
    const first = this.block.find((each) => each.trim() !== "") ?? "";
    return LISTED.test(first) && LISTED.test(line);
  }

  private close(): void {
    this.closed.push(this.block.join(""));
    this.block = [];
  }
}
