// What has changed in the last hour: who came, left, was ejected, was changed, and by whom.

import { call, fetchOnce, now, ticked } from "../app.js";
import { h } from "../dom.js";
import { clock, cut, name, plural, span } from "../format.js";
import { card, filterField, none, passes } from "../parts.js";
import { fleet } from "../state.js";

const HOUR = 3600, MOST = 200, PAGES = 10; // seconds; entries of an answer, and how many of those

export function changes() {
  const { data, error } = fetchOnce("changes", lastHour);
  const all = new Map([...(data ?? []).map((/** @type {any} */ each) => [String(each.id), each]), ...fleet.changes]);
  const found = /** @type {[string, Change][]} */ ([...all]).filter(([, each]) => each.time > now() - HOUR)
    .filter(([, each]) => passes("changes", [each.what.replace(/_/g, " "), each.subject, each.detail, each.name, each.by].join(" ")))
    .sort(([a, x], [b, y]) => y.time - x.time || (a < b ? 1 : -1));
  return card("The last hour", [
    error ? none(error) : null,
    found.length ? h("ol", { class: "log" }, found.slice(0, 500).map(([id, each]) => h("li", { key: id, memo: [ticked()] }, () => [
      h("time", { datetime: new Date(each.time * 1000).toISOString() }, clock(each.time)),
      h("b", null, cut(each.what.replace(/_/g, " "), 40)), name(each.subject, 60),
      h("span", { class: "detail", title: each.detail.length > 160 ? cut(each.detail, 2000) : null }, cut(each.detail, 160)),
      h("span", { class: "dim" }, each.by ? ["by ", name(each.by, 24), " "] : null, "at ", name(each.name, 24), `, ${span(ticked() - each.time)} ago`),
    ]))) : none("Nothing has changed in the last hour, or nothing that passes the filter."),
  ], [h("span", { class: "dim" }, plural(found.length, "change")), filterField("changes", "Filter: what, who, where")]);
}

/** Those that the state has no more: page by page, since ids are times in milliseconds. @returns {Promise<any[]>} */
async function lastHour(since = String(Math.floor((now() - HOUR) * 1000)), pages = PAGES) {
  const { changes } = await call("GET", `/fleet/changes?since=${since}&most=${MOST}`);
  return changes.length < MOST || pages === 1 ? changes : [...changes, ...await lastHour(changes.at(-1).id, pages - 1)];
}
