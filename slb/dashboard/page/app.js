// What all views share: the state, what the user has chosen, and calls of the API.

import { empty } from "./state.js";
import { Stream } from "./stream.js";

const TICK = 5; // seconds

/** A refusal of the API, in its own words. */
export class Refused extends Error {}

/** @typedef {{text: string, undo: (() => Promise<unknown>) | null, isError: boolean, id: number}} Toast */

export const app = {
  /** @type {Fleet} */
  fleet: empty(),
  /** `name` and `argument` of the view, from the address. */
  at: { name: "overview", argument: "" },
  /** When the last event came, and how far the clock of slb is ahead of ours: milliseconds, seconds. */
  heard: 0,
  ahead: 0,
  /** Of each table: by which column, and downwards? @type {Record<string, {column: number, down: boolean}>} */
  sorts: {},
  /** Of each table: its filter, and how many rows are shown. @type {Record<string, string>} */
  filters: {},
  /** @type {Record<string, number>} */
  shown: {},
  /** @type {Toast[]} */
  toasts: [],
  /** What was fetched for a view, by name. @type {Record<string, any>} */
  fetched: {},
  /** Draw soon. */
  draw: () => {},
};

/** @type {Stream} */
export let stream;

/** @param {(isAll: boolean, data: any) => void} onEvent @param {() => void} onLink */
export function open(onEvent, onLink) {
  stream = new Stream(onEvent, onLink);
  stream.restart();
}

/** The time at slb. */
export function now() {
  return Date.now() / 1000 + app.ahead;
}

/** `now` in steps, so that all ages which are drawn with it change together: such a row's memo has it. */
export function ticked() {
  return Math.floor(now() / TICK) * TICK;
}

/** What the API answers. Throws Refused.
 * @param {string} method @param {string} path @param {unknown} [body] @returns {Promise<any>} */
export async function call(method, path, body) {
  const headers = { ...stream.headers, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  let reply;
  try {
    const data = body === undefined ? undefined : JSON.stringify(body);
    reply = await fetch(path, { method, headers, body: data, cache: "no-store" });
  } catch (error) {
    throw new Refused(`no answer: ${error instanceof Error ? error.message : error}`);
  }
  const answer = await reply.json().catch(() => ({}));
  if (reply.ok) return answer;
  if (reply.status === 401) stream.lock(String(answer.detail ?? ""));
  throw new Refused(`${answer.detail ?? reply.statusText} (${reply.status} ${answer.error ?? ""})`);
}

/** Fetch for a view, once: {} until there is an answer, then {data}, or {error}.
 * @param {string} name @param {string | (() => Promise<any>)} asked @param {boolean} [again] */
export function fetchOnce(name, asked, again = false) {
  if (name in app.fetched && !again) return app.fetched[name];
  app.fetched[name] = app.fetched[name]?.data ? app.fetched[name] : {};
  (typeof asked === "string" ? call("GET", asked) : asked())
    .then((data) => (app.fetched[name] = { data }))
    .catch((error) => (app.fetched[name] = { error: error.message }))
    .finally(app.draw);
  return app.fetched[name];
}

let toasts = 0;

/** @param {string} text @param {(() => Promise<unknown>) | null} [undo] @param {boolean} [isError] */
export function toast(text, undo = null, isError = false) {
  app.toasts = [...app.toasts.slice(-2), { text, undo, isError, id: ++toasts }];
  app.draw();
}

/** Of a route in the address of the API: only what would end the path is escaped. @param {string} path */
export function routeUrl(path) {
  return `/routes${path.replace(/[?#\\]/g, encodeURIComponent)}`;
}

/** @param {string} name @param {string} [argument] */
export function link(name, argument = "") {
  return argument ? `#/${name}/${encodeURIComponent(argument)}` : `#/${name}`;
}
