// The fleet's last hour: what the instances kept, and from then on what events say.

import { app, call, now, stream } from "./app.js";
import { totals } from "./state.js";

const STEP = 5, LENGTH = 720; // seconds, and how many of them
const SETTLED = 3000; // milliseconds after which rates are those of traffic: instances count once somebody looks
const NAMES = /** @type {const} */ (["rate", "errors", "inflight", "p50", "p99", "waiting"]);

/** @typedef {Record<typeof NAMES[number] | "time", (number | null)[]>} Hour all of one length; times in seconds */

let began = 0;

/** @type {Hour} */
export const hour = { time: [], rate: [], errors: [], inflight: [], p50: [], p99: [], waiting: [] };

/** From the first figure on, but the last five minutes at least. @returns {Hour} */
export function known() {
  const first = Math.min(hour.rate.findIndex((each) => each !== null), hour.time.length - 60);
  return first <= 0 ? hour : /** @type {Hour} */ (Object.fromEntries(Object.entries(hour).map(([name, values]) => [name, values.slice(first)])));
}

/** Ask for what was before this page was opened. */
export async function load() {
  began = Date.now();
  const found = /** @type {History} */ (await call("GET", "/fleet/history").catch(() => ({ step: STEP, series: {} })));
  const last = Math.floor(now() / STEP) * STEP;
  const known = new Map(hour.time.map((time, i) => [time, i]));
  const kept = { ...hour };
  for (const name of [...NAMES, /** @type {const} */ ("time")]) hour[name] = [];
  for (let time = last - (LENGTH - 1) * STEP; time <= last; time += STEP) {
    const place = known.get(time) ?? -1, at = sumAt(found, time);
    hour.time.push(time);
    for (const name of NAMES) hour[name].push(at[name] ?? kept[name][place] ?? null);
  }
  app.draw();
}

/** @param {History} found @param {number} time @returns {Record<string, number | null>} */
function sumAt(found, time) {
  /** @type {Record<string, number | null>} */
  const sum = {};
  let weighed = 0;
  for (const each of Object.values(found.series)) {
    const place = each.requests.length - 1 - Math.round((each.until - time) / found.step);
    const rate = each.requests[place] ?? null;
    if (rate === null) continue;
    sum.rate = (sum.rate ?? 0) + rate;
    sum.errors = (sum.errors ?? 0) + (each.errors[place] ?? 0);
    sum.inflight = (sum.inflight ?? 0) + (each.inflight[place] ?? 0);
    const [p50, p99] = [each.p50[place] ?? null, each.p99[place] ?? null];
    if (p99 !== null) sum.p99 = Math.max(sum.p99 ?? 0, p99);
    if (p50 !== null) weighed += p50 * rate;
  }
  if (sum.rate && weighed) sum.p50 = weighed / sum.rate;
  return sum;
}

/** One more figure, or the latest one changed. */
export function follow() {
  if (stream.link.state !== "live" || Date.now() - began < SETTLED) return;
  const sum = totals(app.fleet), time = Math.floor(now() / STEP) * STEP;
  if (hour.time.at(-1) !== time) {
    hour.time.push(time);
    for (const name of NAMES) hour[name].push(null);
    if (hour.time.length > LENGTH) for (const each of Object.values(hour)) each.shift();
  }
  for (const name of NAMES) hour[name][hour.time.length - 1] = sum[name];
}
