// Talking to the server: one place for how requests are made and how refusals read.

export interface Problem {
  status: number;
  code: string;
  detail: string;
  remedy?: string;
  /** Told to those who are not signed in: whether a password would let them in. */
  password?: boolean;
}

/** The server said no, or could not be reached (`status` 0). */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super([problem.detail, problem.remedy].filter(Boolean).join(" "));
  }

  /** Whether the same request may well succeed later. */
  get passes(): boolean {
    return this.problem.status === 0 || this.problem.status >= 500 || this.problem.status === 429;
  }
}

/** A cookie goes to every port of a host; what a page keeps itself does not, and is shown beside it. */
export function pageHeader(key: string): Record<string, string> {
  return key ? { "x-holdfast-page": key } : {};
}

/** A client key: the same send twice is one message. */
export function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

type Headers = Readonly<Record<string, string>>;

export class Api {
  /** What the page shows beside the browser's cookie. */
  pageKey = "";

  /** Called whenever the server has answered something. */
  reached: () => void = () => undefined;

  /** `base` is where the page itself is served, with a slash at its end. */
  constructor(private readonly base: string) {}

  url(path: string): string {
    return this.base + path;
  }

  get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return this.ask<T>("GET", path, undefined, signal);
  }

  post<T>(path: string, body: unknown = {}): Promise<T> {
    return this.ask<T>("POST", path, body);
  }

  /** A small thing that is done also by whoever leaves at once. */
  postLast<T>(path: string, body: unknown): Promise<T> {
    return this.ask<T>("POST", path, body, undefined, true);
  }

  put<T>(path: string, body: unknown, headers: Headers = {}): Promise<T> {
    return this.ask<T>("PUT", path, body, undefined, false, headers);
  }

  patch<T>(path: string, body: unknown): Promise<T> {
    return this.ask<T>("PATCH", path, body, undefined, true);
  }

  delete<T>(path: string, headers: Headers = {}): Promise<T> {
    // Whoever deletes something and leaves at once has deleted it.
    return this.ask<T>("DELETE", path, undefined, undefined, true, headers);
  }

  /** What is at `path`, as it is. */
  async fetched(path: string): Promise<Blob> {
    const answer = await this.reach(path, {});
    if (!answer.ok) await this.answered(Promise.resolve(answer));
    return answer.blob();
  }

  /** Store a file; what it is is decided by the server from its content. */
  async upload<T>(file: Blob, name: string): Promise<T> {
    const type = file.type || "application/octet-stream";
    return this.answered<T>(
      this.reach(`api/files?name=${encodeURIComponent(name)}`, { method: "POST", headers: { "content-type": type }, body: file }),
    );
  }

  private ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal, keepalive = false, headers: Headers = {}): Promise<T> {
    const sent = body === undefined ? { headers } : { headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
    return this.answered<T>(this.reach(path, { method, ...sent, ...(signal ? { signal } : {}), keepalive }));
  }

  private async reach(path: string, init: RequestInit): Promise<Response> {
    try {
      const headers = { ...(init.headers as Record<string, string> | undefined), ...pageHeader(this.pageKey) };
      const answer = await fetch(this.url(path), { credentials: "same-origin", ...init, headers });
      if (answer.status < 500) this.reached();
      return answer;
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new Refused({ status: 0, code: "unreachable", detail: "The server cannot be reached." });
    }
  }

  private async answered<T>(asked: Promise<Response>): Promise<T> {
    const answer = await asked;
    const body: unknown = answer.status === 204 ? null : await answer.json().catch(() => null);
    if (answer.ok) return body as T;
    const told = (body ?? {}) as Partial<Problem>;
    throw new Refused({
      status: answer.status, code: told.code ?? "unknown", detail: told.detail ?? `The server answered ${answer.status}.`,
      ...(told.remedy ? { remedy: told.remedy } : {}), ...(told.password === undefined ? {} : { password: told.password }),
    });
  }
}
