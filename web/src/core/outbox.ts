// Messages that are not saved yet: kept in the browser until the server has them, sent in order, each once.

import { Refused } from "./api";

export type IfBusy = "queue" | "steer" | "interrupt";

export interface Letter {
  key: string;
  /** The conversation; a new one has none until its first letter goes out. */
  session: string | null;
  /** The conversation that was open before a new one. */
  previous?: string;
  /** Who is to answer in a new one; without them it is as the server has it. */
  agent?: string;
  model?: string;
  text: string;
  attachments: { id: string; name: string; media_type?: string }[];
  if_busy: IfBusy;
  at: number;
  /** Why the server will not take it; a person decides what becomes of it. */
  refused?: string;
}

export interface Drawer {
  read(): string | null;
  write(text: string): void;
}

export interface Postman {
  begin(letter: Letter): Promise<string>;
  send(session: string, letter: Letter): Promise<void>;
}

export class Outbox {
  private busy = false;

  /** `changed` is called after every change; `exclusively` keeps two tabs from carrying letters at once. */
  constructor(
    private readonly drawer: Drawer,
    private readonly postman: Postman,
    private readonly changed: (letters: Letter[]) => void,
    private readonly exclusively: (work: () => Promise<void>) => Promise<void> = (work) => work(),
  ) {}

  letters(): Letter[] {
    try {
      const found: unknown = JSON.parse(this.drawer.read() ?? "[]");
      return Array.isArray(found) ? (found as Letter[]) : [];
    } catch {
      return [];
    }
  }

  add(letter: Letter): void {
    this.keep([...this.letters(), letter]);
  }

  remove(key: string): void {
    this.keep(this.letters().filter((letter) => letter.key !== key));
  }

  /** Send what waits, in order. Returns whether all of it is saved or refused; else try again later. */
  async flush(): Promise<boolean> {
    if (this.busy) return true;
    this.busy = true;
    let all = true;
    try {
      await this.exclusively(async () => {
        for (let next = this.next(); next && all; next = this.next()) all = await this.carry(next);
      });
    } finally {
      this.busy = false;
    }
    return all;
  }

  private next(): Letter | undefined {
    const letters = this.letters();
    const held = new Set(letters.filter((letter) => letter.refused).map((letter) => letter.session));
    return letters.find((letter) => !letter.refused && (letter.session === null || !held.has(letter.session)));
  }

  private async carry(letter: Letter): Promise<boolean> {
    try {
      const session = letter.session ?? (await this.begin(letter));
      await this.postman.send(session, letter);
      this.remove(letter.key);
      return true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.passes || error.problem.status === 401) return false;
      this.change(letter.key, { refused: error.message });
      return true;
    }
  }

  private async begin(letter: Letter): Promise<string> {
    const session = await this.postman.begin(letter);
    this.change(letter.key, { session });
    return session;
  }

  private change(key: string, changes: Partial<Letter>): void {
    this.keep(this.letters().map((letter) => (letter.key === key ? { ...letter, ...changes } : letter)));
  }

  private keep(letters: Letter[]): void {
    this.drawer.write(JSON.stringify(letters));
    this.changed(letters);
  }
}
