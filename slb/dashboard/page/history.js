// The fleet's last hour: what the instances kept, and from then on what events say.

import { TICK, app, call, fetchOnce, stream, ticked } from "./app.js";
import { together, totals } from "./state.js";

const LENGTH = 720, LEAST = 60; // steps of a tick
const SETTLED = 3000; // milliseconds after which rates are those of traffic: instances count once somebody looks
const NAMES = /** @type {const} */ (["rate", "errors", "inflight", "p50", "p99", "waiting"]);

/** By the time of each step. @type {Map<number, Partial<Record<typeof NAMES[number], Figures[0]>>>} */
const steps = new Map();
let began = 0;

/** From the first figure on, but the last five minutes at least: all of one length, times in seconds.
 * @returns {Record<typeof NAMES[number] | "time", Figures>} */
export function known() {
  const last = ticked(), first = Math.min(last - (LEAST - 1) * TICK, ...steps.keys());
  const length = steps.size && Math.min(LENGTH, (last - first) / TICK + 1);
  const time = Array.from({ length }, (_, i) => last - (length - 1 - i) * TICK);
  const figures = NAMES.map((name) => [name, time.map((each) => steps.get(each)?.[name] ?? null)]);
  return { time, ...Object.fromEntries(figures) };
}

/** Ask for what was before this page was opened. */
export async function load() {
  began = Date.now();
  const { series, step } = /** @type {History} */ (await call("GET", "/fleet/history").catch(() => ({ step: TICK, series: {} })));
  for (let time = ticked() - (LENGTH - 1) * TICK; time <= ticked(); time += TICK) {
    const all = Object.values(series).map((each) => {
      const place = each.requests.length - 1 - Math.round((each.until - time) / step);
      const at = (/** @type {Figures} */ figures) => figures[place] ?? null;
      return { rate: at(each.requests), error_rate: at(each.errors), inflight: at(each.inflight), p50: at(each.p50), p99: at(each.p99) };
    });
    if (all.some((each) => each.rate !== null)) steps.set(time, { ...steps.get(time), ...together(all) });
  }
  app.draw();
}

/** The one route or upstream that is looked at, and what events have said of it since, by time. */
const one = { at: app.at, now: () => /** @type {Now} */ ({}), steps: /** @type {Map<number, Now>} */ (new Map()) };

/** Its last hour: what the instances kept, and what events have said since it is looked at.
 * @param {string} url @param {typeof one.now} now its figures */
export function hourOf(url, now) {
  const isOther = one.at !== app.at;
  if (isOther) [one.at, one.steps] = [app.at, new Map()];
  one.now = now;
  const { data, error } = /** @type {{data?: Hour, error?: string}} */ (fetchOnce(`hour ${url}`, `/fleet/history${url}`, isOther));
  const first = ticked() - LENGTH * TICK, later = [...one.steps].filter(([time]) => time > (data?.until ?? 0));
  const kept = (data?.requests ?? []).map((_, i, { length }) => (data?.until ?? 0) - (length - 1 - i) * (data?.step ?? 0));
  const skipped = kept.filter((time) => time <= first).length;
  const values = (/** @type {string} */ name) =>
    [.../** @type {any} */ (data)?.[name]?.slice(skipped) ?? [], ...later.map(([, each]) => each[name] ?? null)];
  return { time: [...kept.slice(skipped), ...later.map(([time]) => time)], values, data, error };
}

/** One more figure, or the latest one changed. */
export function follow() {
  if (stream.link.state !== "live" || Date.now() - began < SETTLED) return;
  if (one.at === app.at) one.steps.set(ticked(), one.now());
  for (const time of one.steps.keys()) if (time <= ticked() - LENGTH * TICK) one.steps.delete(time);
  steps.set(ticked(), totals());
  for (const time of steps.keys()) if (time <= ticked() - LENGTH * TICK) steps.delete(time);
}
