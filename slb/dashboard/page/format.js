// How figures, times and names are written.

import { h, visible } from "./dom.js";

const LONGEST = 64; // characters of a name that are shown; all of it is the title
const NONE = "–";

/** A text from outside on one line, cut in the middle. @param {unknown} text @param {number} [most] */
export function cut(text, most = LONGEST) {
  const shown = visible(String(text));
  if (shown.length <= most) return shown;
  const tail = Math.floor(most / 3);
  return `${shown.slice(0, most - tail - 1)}…${shown.slice(-tail)}`;
}

/** A name from outside, isolated from the text around it. @param {string} text @param {number} [most] */
export function name(text, most) {
  const shown = cut(text, most);
  return h("bdi", { class: "name", title: shown === text ? null : text.slice(0, 4096) }, shown);
}

export function count(/** @type {number | null | undefined} */ value) {
  if (value == null) return NONE;
  if (value >= 999_500) return `${(value / 1e6).toFixed(value >= 9_999_500 ? 0 : 1)}M`;
  if (value >= 9_950) return `${(value / 1e3).toFixed(0)}k`;
  return String(Math.round(value * 10) / 10);
}

/** Per second. @param {number | null | undefined} value */
export function rate(value) {
  if (value == null) return NONE;
  if (value === 0 || value >= 9.95) return count(Math.round(value));
  return value < 0.1 ? "<0.1" : value.toFixed(1);
}

/** A short time. @param {number | null | undefined} value seconds */
export function seconds(value) {
  if (value == null) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.9995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  return value < 9.95 ? `${value.toFixed(2)} s` : span(value);
}

/** A long one. @param {number | null | undefined} value seconds */
export function span(value) {
  if (value == null) return NONE;
  const whole = Math.max(0, Math.round(value));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60 ? `${whole % 60} s` : ""}`.trim();
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** @param {number} share 0 to 1 */
export function percent(share) {
  return `${share > 0 && share < 0.01 ? "<1" : Math.round(share * 100)} %`;
}

export function capital(/** @type {string} */ text) {
  return text[0].toUpperCase() + text.slice(1);
}

/** The time of day. @param {number} time seconds since 1970 */
export function clock(time) {
  return new Date(time * 1000).toLocaleTimeString("en-GB");
}

/** @param {number} number @param {string} one @param {string} [many] */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** The order in which people count: gpu-2 before gpu-10. */
export const natural = new Intl.Collator("en", { numeric: true }).compare;
