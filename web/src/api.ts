// Requests to the server that gave out this page, and no other. The key is in memory alone.
import { eventsOf, type ServerEvent } from "./sse.ts";

export class ApiError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let key = "";
let askForKey: () => void = () => undefined;

export function setKey(value: string): void { key = value; }
export function hasKey(): boolean { return key !== ""; }
export function onKeyWanted(ask: () => void): void { askForKey = ask; }

export async function send(method: string, path: string, body?: unknown, more: RequestInit = {}): Promise<Response> {
  const headers: Record<string, string> = { ...(more.headers as Record<string, string>) };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    ...more, method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    redirect: "error", credentials: "omit", referrerPolicy: "no-referrer" });
  if (response.ok) return response;
  if (response.status === 401) askForKey();
  const text = await response.text();
  let message = text.slice(0, 500) || response.statusText;
  try {
    message = JSON.parse(text).error.message;
  } catch { /* the text says it */ }
  throw new ApiError(response.status, message);
}

export async function get<T>(path: string): Promise<T> {
  return (await send("GET", path)).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await send("POST", path, body)).json() as Promise<T>;
}

/** Follows a stream of JSON events until `signal`; begins anew, ever more slowly, where it breaks. */
export function follow<T>(path: string, signal: AbortSignal, take: (value: T) => void, fail: (error: ApiError) => void): void {
  void (async () => {
    for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 15000)) {
      try {
        const response = await send("GET", path, undefined, { signal });
        for await (const event of eventsOf(response)) {
          wait = 500;
          take(JSON.parse(event.data) as T);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && error.status < 500) return fail(error);
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  })();
}

const kStreamHeader = "X-Conversation-Id";

/**
 * Events of an answer. The server goes on with it when the connection breaks, so a broken one is
 * taken up behind the last event; `body` absent takes up the stream `name` from its beginning.
 */
export async function* answer(name: string, body: object | undefined, signal: AbortSignal): AsyncGenerator<ServerEvent> {
  let next = 0;
  let response: Response | undefined;
  if (body) response = await send("POST", "/v1/chat/completions", body, { signal, headers: { [kStreamHeader]: name } });
  for (let tries = 0; ; ++tries) {
    try {
      response ??= await send("GET", `/v1/stream?conv_id=${encodeURIComponent(name)}&from=${next}`, undefined, { signal });
      for await (const event of eventsOf(response)) {
        if (event.id !== undefined) next = Number(event.id) + 1;
        tries = 0;
        yield event;
        if (event.data === "[DONE]") return;
      }
    } catch (error) {
      if (signal.aborted || error instanceof ApiError) throw error;
    }
    response = undefined;
    if (signal.aborted) return;
    if (tries >= 6) throw new ApiError(0, "the connection to the server is lost");
    await new Promise((resolve) => setTimeout(resolve, Math.min(200 * 2 ** tries, 5000)));
  }
}

export async function endAnswer(name: string): Promise<void> {
  await send("DELETE", `/v1/stream?conv_id=${encodeURIComponent(name)}`).catch(() => undefined);
}
