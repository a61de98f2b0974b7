// Why a request went where it went, or got its 503: what instances remember of its id.

import { app, fetchOnce, link } from "../app.js";
import { h } from "../dom.js";
import { clock, cut, name, seconds } from "../format.js";
import { badge, card, none, pairs, routeLink } from "../parts.js";

const SAID = new Set(["request_id", "instance", "instance_name", "status", "reason", "route", "time", "id"]);

export function explain() {
  const id = app.at.argument;
  const ask = (/** @type {any} */ event) => {
    event.preventDefault();
    const wanted = String(new FormData(event.target).get("id")).trim();
    if (wanted === id) fetchOnce(`explain ${id}`, `/explain/${encodeURIComponent(id)}`, true);
    else location.hash = link("explain", wanted);
  };
  return card("Why did this request go there?", [
    h("form", { key: `form ${id}`, class: "ask", onsubmit: ask }, h("label", null, h("span", null, "Request id"),
      h("input", { name: "id", value: id, autocomplete: "off", spellcheck: "false", placeholder: "X-Request-Id of the answer, request_id of the log" })),
      h("button", { type: "submit", class: "primary" }, "Explain")),
    id ? answer(id) : none("Every answer has its id in X-Request-Id; the access log and refusals have it too. Instances remember their last requests."),
  ]);
}

function answer(/** @type {string} */ id) {
  const { data, error } = fetchOnce(`explain ${id}`, `/explain/${encodeURIComponent(id)}`);
  if (!data) return none(error ? cut(error, 400) : "Asking all instances …");
  return data.found.map((/** @type {Record<string, any>} */ each) => h("section", { class: "found", key: each.instance },
    h("h3", null, each.status ? badge(String(each.status), each.status >= 500 ? "bad" : "good") : null, " ",
      each.reason ? h("b", null, cut(each.reason)) : null,
      each.route ? [" on ", routeLink(each.route)] : null, " at ", name(each.instance_name, 40), each.time ? `, ${clock(each.time)}` : null),
    pairs(Object.entries(each).filter(([key, value]) => !SAID.has(key) && String(value ?? "") !== "")
      .map(([key, value]) => [key.replace(/_/g, " "), written(key, value)]))));
}

/** @param {string} key @param {any} value @returns {Child} */
function written(key, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.length ? h("ol", { class: "verdicts" }, value.map((each) => h("li", null, written(key, each)))) : "none";
  if (typeof value === "object") return Object.entries(value).map(([inner, each]) => h("span", { class: "pair" }, `${inner.replace(/_/g, " ")} `,
    written(inner, each), " "));
  if (typeof value === "number" && /after|duration|queued/.test(key)) return seconds(value);
  return name(String(value), 200);
}
