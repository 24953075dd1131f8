// Messages that the conversation does not show yet: kept in the browser until the server has them, sent in order, each
// once; and until the event stream brings their turns, so that none disappears on the way.

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
  /** `anyway`: an image that goes also to a model that is not known to read images. */
  attachments: { id: string; name: string; media_type?: string; anyway?: boolean }[];
  if_busy: IfBusy;
  at: number;
  /** Why the server will not take it; a person decides what becomes of it. */
  refused?: string;
  /** The event that the server saved it as, once it has. */
  seq?: number;
}

/** The place of a letter in the server's journal. */
export interface Receipt {
  session: string;
  seq: number;
}

export interface Drawer {
  read(): string | null;
  write(text: string): void;
}

export interface Postman {
  begin(letter: Letter): Promise<string>;
  send(session: string, letter: Letter): Promise<Receipt>;
}

export class Outbox {
  private busy = false;
  /** Letters that the server has and the conversation does not show yet. A reloaded page reads those from the server. */
  private arriving: (Letter & Receipt)[] = [];

  /**
   * `changed` is called after every change with all letters to show; `isShown` tells whether the conversation shows a
   * saved letter; `exclusively` keeps two tabs from carrying letters at once.
   */
  constructor(
    private readonly drawer: Drawer,
    private readonly postman: Postman,
    private readonly changed: (letters: Letter[]) => void,
    private readonly isShown: (receipt: Receipt) => boolean = () => true,
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

  /** Drop the letters that the conversation shows now; `keys` are those of turns that the event stream brought. */
  arrived(keys: readonly string[] = []): void {
    const before = this.arriving.length;
    this.arriving = this.arriving.filter((letter) => !keys.includes(letter.key) && !this.isShown(letter));
    const waiting = this.letters();
    const rest = waiting.filter((letter) => !keys.includes(letter.key));
    if (rest.length < waiting.length || this.arriving.length < before) this.keep(rest);
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
      const receipt = await this.postman.send(session, letter);
      const isWaiting = this.letters().some(({ key }) => key === letter.key);
      if (isWaiting && !this.isShown(receipt)) this.arriving.push({ ...letter, ...receipt });
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
    this.changed([...this.arriving, ...letters]);
  }
}
