// The stream of events of one slb: opened again when it breaks, closed while nobody looks.

const PAUSES = [0.5, 1, 2, 4, 8]; // seconds before each try; the last holds on
const SILENT = 40; // seconds without a byte after which a connection is dead: comments come every 15
const REST_AFTER = 60; // seconds hidden after which the stream is closed

/**
 * `state`: connecting, live, lost (tries again at `retryAt`, in milliseconds), locked (needs a token), refused,
 * resting (the page is hidden).
 * @typedef {{state: string, why: string, since: number, retryAt: number}} Link
 */

export class Stream {
  /** @type {Link} */
  link = { state: "connecting", why: "", since: Date.now(), retryAt: 0 };
  /** Kept here and nowhere else. */
  #token = "";
  #tries = 0;
  /** @type {AbortController | null} */
  #open = null;
  #timer = 0;
  #restTimer = 0;
  #onEvent;
  #onLink;

  /** @param {(isAll: boolean, data: any) => void} onEvent @param {() => void} onLink `link` is another */
  constructor(onEvent, onLink) {
    this.#onEvent = onEvent;
    this.#onLink = onLink;
    document.addEventListener("visibilitychange", () => this.#look());
    if (document.hidden) this.#look();
  }

  /** @param {string} token */
  unlock(token) {
    this.#token = token.trim();
    this.restart();
  }

  /** @returns {Record<string, string>} */
  get headers() {
    return this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
  }

  get hasToken() {
    return this.#token !== "";
  }

  restart() {
    this.#close();
    this.#tries = 0;
    void this.#run();
  }

  /** The API has refused the token elsewhere. @param {string} why */
  lock(why) {
    this.#token = "";
    this.#close();
    this.#be("locked", why);
  }

  #close() {
    clearTimeout(this.#timer);
    this.#open?.abort();
    this.#open = null;
  }

  #look() {
    clearTimeout(this.#restTimer);
    if (document.hidden) {
      this.#restTimer = setTimeout(() => {
        if (this.link.state === "locked" || this.link.state === "refused") return;
        this.#close();
        this.#be("resting", "");
      }, REST_AFTER * 1000);
    } else if (this.link.state === "resting") this.restart();
  }

  /** @param {string} state @param {string} why @param {number} [retryAt] */
  #be(state, why, retryAt = 0) {
    const since = state === this.link.state ? this.link.since : Date.now();
    this.link = { state, why, since, retryAt };
    this.#onLink();
  }

  async #run() {
    const open = new AbortController();
    this.#open = open;
    if (this.link.state !== "lost") this.#be("connecting", "");
    try {
      const reply = await fetch("/fleet/events", { headers: this.headers, signal: open.signal, cache: "no-store" });
      if (reply.status === 401 || reply.status === 403) {
        const { detail } = await reply.json().catch(() => ({ detail: "" }));
        this.#token = reply.status === 401 ? "" : this.#token;
        return this.#be(reply.status === 401 ? "locked" : "refused", String(detail));
      }
      const isStream = reply.headers.get("Content-Type")?.startsWith("text/event-stream");
      if (!reply.ok || !reply.body || !isStream) throw new Error(`it answers ${reply.status} ${reply.statusText}`);
      await this.#read(reply.body, open);
      throw new Error("it has ended the stream");
    } catch (error) {
      if (this.#open !== open) return; // closed here
      const why = error instanceof Error ? error.message : String(error);
      const pause = PAUSES[Math.min(this.#tries, PAUSES.length - 1)] * (0.8 + 0.4 * Math.random());
      this.#tries += 1;
      this.#be("lost", why, Date.now() + pause * 1000);
      this.#timer = setTimeout(() => void this.#run(), pause * 1000);
    }
  }

  /** @param {ReadableStream<Uint8Array<ArrayBuffer>>} body @param {AbortController} open */
  async #read(body, open) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const watch = setTimeout(() => open.abort(new Error(`nothing was heard for ${SILENT} s`)), SILENT * 1000);
      const { value, done } = await reader.read().finally(() => clearTimeout(watch));
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop() ?? "";
      for (const part of parts) this.#take(part);
    }
  }

  /** @param {string} event */
  #take(event) {
    let name = "", data = "";
    for (const line of event.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    this.#tries = 0;
    this.#onEvent(name === "all", JSON.parse(data));
    if (this.link.state !== "live") this.#be("live", "");
  }
}
