// The stream of events of one slb: opened again when it breaks, closed while nobody looks.

const PAUSES = [0.5, 1, 2, 4, 8]; // seconds before each try; the last holds on
const SILENT = 40; // seconds without a byte after which a connection is dead: comments come every 15
const REST_AFTER = 60; // seconds hidden after which the stream is closed

export class Stream {
  /** @type {Link} */
  link = { state: "connecting", why: "", since: Date.now(), retryAt: 0, isShut: false };
  /** Set by the page: what takes events, and what is called when `link` is another. @type {(isAll: boolean, data: any) => void} */
  onEvent = () => {};
  onLink = () => {};
  #token = ""; // kept here and nowhere else
  #tries = 0;
  /** @type {AbortController | null} */
  #open = null;
  #rest = 0;

  constructor() {
    const look = () => {
      clearTimeout(this.#rest);
      if (document.hidden) this.#rest = setTimeout(() => this.#close("resting"), REST_AFTER * 1000);
      else if (this.link.state === "resting") this.restart();
    };
    document.addEventListener("visibilitychange", look);
    look();
  }

  /** @returns {Record<string, string>} */
  get headers() {
    return this.#token ? { Authorization: `Bearer ${this.#token}` } : {};
  }

  restart(token = this.#token) {
    this.#token = token;
    this.#open?.abort();
    this.#tries = 0;
    void this.#run();
  }

  /** Without a token from now on. */
  lock(/** @type {string} */ why) {
    this.#token = "";
    this.#close("locked", why);
  }

  #close(/** @type {string} */ state, why = "") {
    this.#open?.abort();
    this.#open = null;
    this.#be(state, why);
  }

  #be(/** @type {string} */ state, why = "", retryAt = 0) {
    const since = state === this.link.state ? this.link.since : Date.now();
    this.link = { state, why, since, retryAt, isShut: state === "locked" || state === "refused" };
    this.onLink();
  }

  async #run() {
    const open = this.#open = new AbortController();
    if (this.link.state !== "lost") this.#be("connecting");
    try {
      const reply = await fetch("/fleet/events", { headers: this.headers, signal: open.signal, cache: "no-store" });
      if (reply.status === 401 || reply.status === 403) {
        const { detail } = await reply.json().catch(() => ({ detail: "" }));
        return reply.status === 401 ? this.lock(detail) : this.#close("refused", detail);
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
      setTimeout(() => this.#open === open && this.#run(), pause * 1000);
    }
  }

  async #read(/** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ body, /** @type {AbortController} */ open) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const watch = setTimeout(() => open.abort(new Error(`nothing was heard for ${SILENT} s`)), SILENT * 1000);
      const { value, done } = await reader.read().finally(() => clearTimeout(watch));
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop() ?? "";
      for (const event of parts) {
        const [, data] = event.match(/^data: (.*)$/m) ?? []; // one line; a comment has none
        if (!data) continue;
        this.#tries = 0;
        this.onEvent(/^event: all$/m.test(event), JSON.parse(data));
        if (this.link.state !== "live") this.#be("live");
      }
    }
  }
}
