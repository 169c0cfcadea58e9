// The coordinator's HTTP interface: requests that fail in words, and the live stream that comes back by itself.

const BASE = "/api/v1";
const QUIET_MS = 20_000;
const LONGEST_PAUSE_MS = 8_000;

/** What went wrong, as the coordinator words it. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly line: number | null = null,
    readonly column: number | null = null,
  ) {
    super(detail || title);
  }

  static async of(response: Response): Promise<Problem> {
    let body: Record<string, unknown> = {};
    try {
      body = (await response.json()) as Record<string, unknown>;
    } catch {
      // not JSON: the status says it
    }
    const detail = typeof body.detail === "string" ? body.detail : "";
    const place = /line (\d+)(?:, column (\d+))?/.exec(detail);
    const line = Number(body.line ?? place?.[1] ?? 0) || null;
    const column = Number(body.column ?? place?.[2] ?? 0) || null;
    return new Problem(response.status, String(body.title ?? response.statusText), detail, line, column);
  }
}

export type Connection = "connecting" | "live" | "lost" | "unauthorised";

export interface StreamHandlers {
  event(kind: string, data: unknown): void;
  connection(state: Connection, retryMs?: number): void;
}

export class Api {
  constructor(public token: string | null) {}

  get<T>(path: string): Promise<T> {
    return this.ask<T>("GET", path);
  }

  post<T>(path: string, body: unknown): Promise<T> {
    return this.ask<T>("POST", path, body);
  }

  put<T>(path: string, body: unknown): Promise<T> {
    return this.ask<T>("PUT", path, body);
  }

  patch<T>(path: string, body: unknown): Promise<T> {
    return this.ask<T>("PATCH", path, body);
  }

  remove<T>(path: string): Promise<T> {
    return this.ask<T>("DELETE", path);
  }

  private async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers = this.headers();
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (method !== "GET") headers["Idempotency-Key"] = key();
    let response: Response;
    try {
      response = await fetch(BASE + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch {
      throw new Problem(0, "No answer", "The coordinator does not answer. Is it still running?");
    }
    if (!response.ok) throw await Problem.of(response);
    const text = await response.text();
    return (text ? JSON.parse(text) : undefined) as T;
  }

  private headers(): Record<string, string> {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  /** Reads the live stream until it is stopped; after a break it goes on behind the last event it saw. */
  follow(handlers: StreamHandlers): () => void {
    let stopped = false;
    let last = "";
    let pause = 500;
    let abort = new AbortController();
    const run = async (): Promise<void> => {
      while (!stopped) {
        abort = new AbortController();
        handlers.connection("connecting");
        try {
          const headers = this.headers();
          if (last) headers["Last-Event-ID"] = last;
          const response = await fetch(`${BASE}/stream`, { headers, signal: abort.signal });
          if (response.status === 401 || response.status === 403) {
            handlers.connection("unauthorised");
            return;
          }
          if (!response.ok || !response.body) throw new Error(String(response.status));
          handlers.connection("live");
          pause = 500;
          await read(response.body, abort, (kind, data, id) => {
            if (id) last = id;
            handlers.event(kind, data);
          });
        } catch {
          // lost: told below
        }
        if (stopped) return;
        handlers.connection("lost", pause);
        await new Promise((done) => setTimeout(done, pause));
        pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
      }
    };
    void run();
    return () => {
      stopped = true;
      abort.abort();
    };
  }
}

async function read(
  body: ReadableStream<Uint8Array>,
  abort: AbortController,
  each: (kind: string, data: unknown, id: string) => void,
): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const quiet = setTimeout(() => abort.abort(), QUIET_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(quiet));
    if (done) return;
    rest = (rest + value).replaceAll("\r\n", "\n");
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      deliver(rest.slice(0, end), each);
      rest = rest.slice(end + 2);
    }
  }
}

function deliver(block: string, each: (kind: string, data: unknown, id: string) => void): void {
  let kind = "message";
  let id = "";
  const data: string[] = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("id:")) id = line.slice(3).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) each(kind, JSON.parse(data.join("\n")), id);
}

function key(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
}
