// Parse server-sent events from a stream of text, however it is cut into chunks.

export interface Frame {
  id: string;
  event: string;
  data: string;
}

export class SseParser {
  private buffer = "";
  private frame: Frame = { id: "", event: "", data: "" };

  /** Return the frames that are complete now. */
  feed(text: string): Frame[] {
    const lines = (this.buffer + text).split("\n");
    this.buffer = lines.pop() ?? "";
    const frames: Frame[] = [];
    for (const line of lines) {
      if (line === "") {
        if (this.frame.data) frames.push(this.frame);
        this.frame = { id: "", event: "", data: "" };
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue; // A comment: a keep-alive.
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
      if (name === "data") this.frame.data += (this.frame.data ? "\n" : "") + value;
      else if (name === "id" || name === "event") this.frame[name] = value;
    }
    return frames;
  }
}
