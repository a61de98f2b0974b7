// What all views share: what the user has chosen, and calls of the API.

import { Stream } from "./stream.js";

export const TICK = 5; // seconds

export const stream = new Stream();

export const app = {
  at: { name: "", argument: "" }, // the view, from the address
  heard: 0, // when the last event came, in milliseconds
  ahead: 0, // how far the clock of slb is ahead of ours, in seconds
  /** What is typed into each filter. @type {Record<string, string>} */
  filters: {},
  /** @type {Toast[]} */
  toasts: [],
  /** What was fetched for a view, by name. @type {Record<string, any>} */
  fetched: {},
  draw: () => {}, // soon
};

/** The time at slb. */
export function now() {
  return Date.now() / 1000 + app.ahead;
}

/** `now` in steps, so that all ages which are drawn with it change together: such a row's memo has it. */
export function ticked() {
  return Math.floor(now() / TICK) * TICK;
}

/** What the API answers. Throws its refusals, in its own words.
 * @param {string} method @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export async function call(method, path, body) {
  const headers = { ...stream.headers, "Content-Type": "application/json" };
  const reply = await fetch(path, { method, headers, body: JSON.stringify(body), cache: "no-store" }).catch((error) => {
    throw new Error(`no answer: ${error.message}`);
  });
  const answer = await reply.json().catch(() => ({}));
  if (reply.ok) return answer;
  if (reply.status === 401) stream.lock(String(answer.detail ?? ""));
  throw new Error(`${answer.detail ?? reply.statusText} (${reply.status} ${answer.error ?? ""})`);
}

/** Fetch for a view, once: {} until there is an answer, then {data}, or {error}.
 * @param {string} name @param {string | (() => Promise<any>)} asked @param {boolean} [again] */
export function fetchOnce(name, asked, again = false) {
  if (name in app.fetched && !again) return app.fetched[name];
  app.fetched[name] = { data: app.fetched[name]?.data };
  (typeof asked === "string" ? call("GET", asked) : asked())
    .then((data) => (app.fetched[name] = { data }))
    .catch((error) => (app.fetched[name] = { error: error.message }))
    .finally(app.draw);
  return app.fetched[name];
}

export function toast(/** @type {string} */ text, /** @type {Toast["undo"]} */ undo = null, isError = false) {
  app.toasts = [...app.toasts.slice(-2), { text, undo, isError, id: (app.toasts.at(-1)?.id ?? 0) + 1 }];
  app.draw();
}

/** Of a route in the address of the API: only what would end the path is escaped. @param {string} path */
export function routeUrl(path) {
  return `/routes${path.replace(/[?#\\]/g, encodeURIComponent)}`;
}

export function link(/** @type {string} */ name, argument = "") {
  return argument ? `#/${name}/${encodeURIComponent(argument)}` : `#/${name}`;
}
