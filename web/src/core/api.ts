// The HTTP client: how requests are made and how errors are reported.

export interface Problem {
  status: number;
  code: string;
  detail: string;
  remedy?: string;
  /** Sent to clients that are not signed in: whether a password is accepted here. */
  password?: boolean;
}

/** The server refused the request, or could not be reached (`status` 0). */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super([problem.detail, problem.remedy].filter(Boolean).join(" "));
  }

  /** Return whether the same request may succeed later. */
  get isRetryable(): boolean {
    return this.problem.status === 0 || this.problem.status >= 500 || this.problem.status === 429;
  }
}

/** Return the header with the page's own key. A cookie is sent to every port of a host; this key is not. */
export function pageKeyHeader(key: string): Record<string, string> {
  return key ? { "x-holdfast-page": key } : {};
}

/** Return a new idempotency key: two sends with the same key make one message. */
export function newIdempotencyKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

type Headers = Readonly<Record<string, string>>;

export class ApiClient {
  /** The key that the page sends in addition to the browser's cookie. */
  pageKey = "";

  /** Called after every response of the server. */
  onResponse: () => void = () => undefined;

  /** `base` is the address of the page, with a slash at its end. */
  constructor(private readonly base: string) {}

  url(path: string): string {
    return this.base + path;
  }

  get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return this.request<T>("GET", path, undefined, signal);
  }

  post<T>(path: string, body: unknown = {}): Promise<T> {
    return this.request<T>("POST", path, body);
  }

  /** Send a small request that completes even if the page is closed at once. */
  postKeepalive<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>("POST", path, body, undefined, true);
  }

  put<T>(path: string, body: unknown, headers: Headers = {}): Promise<T> {
    return this.request<T>("PUT", path, body, undefined, false, headers);
  }

  patch<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>("PATCH", path, body, undefined, true);
  }

  delete<T>(path: string, headers: Headers = {}): Promise<T> {
    // Complete the deletion even if the page is closed at once.
    return this.request<T>("DELETE", path, undefined, undefined, true, headers);
  }

  /** Return the unparsed content at `path`. */
  async getBlob(path: string): Promise<Blob> {
    const response = await this.send(path, {});
    if (!response.ok) await this.parse(Promise.resolve(response));
    return response.blob();
  }

  /** Store a file. The server decides its type from its content. */
  async upload<T>(file: Blob, name: string): Promise<T> {
    const type = file.type || "application/octet-stream";
    return this.parse<T>(
      this.send(`api/files?name=${encodeURIComponent(name)}`, { method: "POST", headers: { "content-type": type }, body: file }),
    );
  }

  private request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal, keepalive = false, headers: Headers = {}): Promise<T> {
    const content = body === undefined ? { headers } : { headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
    return this.parse<T>(this.send(path, { method, ...content, ...(signal ? { signal } : {}), keepalive }));
  }

  private async send(path: string, init: RequestInit): Promise<Response> {
    try {
      const headers = { ...(init.headers as Record<string, string> | undefined), ...pageKeyHeader(this.pageKey) };
      const response = await fetch(this.url(path), { credentials: "same-origin", ...init, headers });
      if (response.status < 500) this.onResponse();
      return response;
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new ApiError({ status: 0, code: "unreachable", detail: "The server cannot be reached." });
    }
  }

  private async parse<T>(sent: Promise<Response>): Promise<T> {
    const response = await sent;
    const body: unknown = response.status === 204 ? null : await response.json().catch(() => null);
    if (response.ok) return body as T;
    const problem = (body ?? {}) as Partial<Problem>;
    throw new ApiError({
      status: response.status, code: problem.code ?? "unknown", detail: problem.detail ?? `The server answered ${response.status}.`,
      ...(problem.remedy ? { remedy: problem.remedy } : {}), ...(problem.password === undefined ? {} : { password: problem.password }),
    });
  }
}
