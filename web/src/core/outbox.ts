// Messages that the conversation does not show yet: stored in the browser until the server has saved them, sent in
// order and once each, and shown until the event stream brings their turns.

import { ApiError } from "./api";

export type IfBusy = "queue" | "steer" | "interrupt";

export interface OutgoingMessage {
  key: string;
  /** The session; null until the first message of a new session is sent. */
  session: string | null;
  /** The session that was open before a new one. */
  previous?: string;
  /** The agent and model of a new session; without them, the server's defaults apply. */
  agent?: string;
  model?: string;
  text: string;
  /** `anyway`: send this image even to a model that is not known to read images. */
  attachments: { id: string; name: string; media_type?: string; anyway?: boolean }[];
  if_busy: IfBusy;
  at: number;
  /** Why the server refused it. The user decides what to do. */
  refused?: string;
  /** The sequence number of the event that saved it. */
  seq?: number;
}

/** Where the server's journal saved a message. */
export interface DeliveryReceipt {
  session: string;
  seq: number;
}

export interface OutboxStorage {
  read(): string | null;
  write(text: string): void;
}

export interface MessageTransport {
  createSession(message: OutgoingMessage): Promise<string>;
  send(session: string, message: OutgoingMessage): Promise<DeliveryReceipt>;
}

export class Outbox {
  private busy = false;
  /** Messages that the server saved and the conversation does not show yet. A reloaded page reads those from the server. */
  private unconfirmed: (OutgoingMessage & DeliveryReceipt)[] = [];

  /**
   * `onChange` is called after every change with all messages to show; `isShown` returns whether the conversation shows
   * a saved message; `withLock` prevents two tabs from sending at once.
   */
  constructor(
    private readonly storage: OutboxStorage,
    private readonly transport: MessageTransport,
    private readonly onChange: (messages: OutgoingMessage[]) => void,
    private readonly isShown: (receipt: DeliveryReceipt) => boolean = () => true,
    private readonly withLock: (action: () => Promise<void>) => Promise<void> = (work) => work(),
  ) {}

  messages(): OutgoingMessage[] {
    try {
      const parsed: unknown = JSON.parse(this.storage.read() ?? "[]");
      return Array.isArray(parsed) ? (parsed as OutgoingMessage[]) : [];
    } catch {
      return [];
    }
  }

  /** Remove the messages that the conversation shows now; `keys` are those of the turns that the event stream brought. */
  confirm(keys: readonly string[] = []): void {
    const before = this.unconfirmed.length;
    this.unconfirmed = this.unconfirmed.filter((message) => !keys.includes(message.key) && !this.isShown(message));
    const waiting = this.messages();
    const remaining = waiting.filter((message) => !keys.includes(message.key));
    if (remaining.length < waiting.length || this.unconfirmed.length < before) this.save(remaining);
  }

  add(message: OutgoingMessage): void {
    this.save([...this.messages(), message]);
  }

  remove(key: string): void {
    this.save(this.messages().filter((message) => message.key !== key));
  }

  /** Send the waiting messages in order. Return whether all are saved or refused; otherwise try again later. */
  async flush(): Promise<boolean> {
    if (this.busy) return true;
    this.busy = true;
    let isDone = true;
    try {
      await this.withLock(async () => {
        for (let next = this.nextSendable(); next && isDone; next = this.nextSendable()) isDone = await this.sendOne(next);
      });
    } finally {
      this.busy = false;
    }
    return isDone;
  }

  private nextSendable(): OutgoingMessage | undefined {
    const messages = this.messages();
    const blocked = new Set(messages.filter((message) => message.refused).map((message) => message.session));
    return messages.find((message) => !message.refused && (message.session === null || !blocked.has(message.session)));
  }

  private async sendOne(message: OutgoingMessage): Promise<boolean> {
    try {
      const session = message.session ?? (await this.createSession(message));
      const receipt = await this.transport.send(session, message);
      const isWaiting = this.messages().some(({ key }) => key === message.key);
      if (isWaiting && !this.isShown(receipt)) this.unconfirmed.push({ ...message, ...receipt });
      this.remove(message.key);
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.isRetryable || error.problem.status === 401) return false;
      this.change(message.key, { refused: error.message });
      return true;
    }
  }

  private async createSession(message: OutgoingMessage): Promise<string> {
    const session = await this.transport.createSession(message);
    this.change(message.key, { session });
    return session;
  }

  private change(key: string, changes: Partial<OutgoingMessage>): void {
    this.save(this.messages().map((message) => (message.key === key ? { ...message, ...changes } : message)));
  }

  private save(messages: OutgoingMessage[]): void {
    this.storage.write(JSON.stringify(messages));
    this.onChange([...this.unconfirmed, ...messages]);
  }
}
