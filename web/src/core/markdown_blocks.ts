// Split Markdown that is still being written where later text cannot change earlier blocks: closed blocks are
// rendered once, only the last one is rendered again.

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const LIST_LINE = /^\s*(?:[-*+]|\d{1,9}[.)])\s|^\s{2,}\S/;

export class BlockSplitter {
  /** Blocks that cannot change any more. */
  readonly closed: string[] = [];
  private consumed = 0;
  private fence = "";
  private line = "";
  private block: string[] = [];

  /** Return the open block, given the whole text so far, which may only have grown. */
  feed(text: string): string {
    for (const chunk of text.slice(this.consumed).split(/(?<=\n)/)) {
      this.line += chunk;
      if (this.line.endsWith("\n")) {
        this.addLine(this.line);
        this.line = "";
      }
    }
    this.consumed = text.length;
    return this.block.join("") + this.line;
  }

  private addLine(line: string): void {
    const fence = FENCE.exec(line)?.[1];
    if (this.fence) {
      this.block.push(line);
      if (fence && fence[0] === this.fence[0] && fence.length >= this.fence.length && line.trim() === fence) this.fence = "";
      return;
    }
    if (fence) this.fence = fence;
    // A blank line ends a block, unless the block is a list that continues.
    const blank = line.trim() === "";
    if (!blank && this.block.length && this.block.at(-1)?.trim() === "" && !this.continuesList(line)) this.closeBlock();
    this.block.push(line);
  }

  private continuesList(line: string): boolean {
    const first = this.block.find((each) => each.trim() !== "") ?? "";
    return LIST_LINE.test(first) && LIST_LINE.test(line);
  }

  private closeBlock(): void {
    this.closed.push(this.block.join(""));
    this.block = [];
  }
}
