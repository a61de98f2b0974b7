// What views are put together from: tables, cells, meters, badges.

import { app, link } from "./app.js";
import { h, icon } from "./dom.js";
import { count, cut, name, natural, percent, plural } from "./format.js";
import { room } from "./state.js";

const ROWS = 200; // of a table, until more are asked for
const ACROSS = 8, MOST_BOXES = 40, STEP = 8, SIDE = 6; // boxes of a cell: how many, and pixels
const ICONS = /** @type {Record<string, string>} */ ({ up: "up", unchecked: "ring", failing: "warn", down: "cross", ejected: "eject", draining: "pause",
  unknown: "ring" });

/** @param {Upstream | undefined} upstream */
export function condition(upstream) {
  return !upstream ? "unknown" : upstream.drain && upstream.health !== "down" ? "draining" : upstream.health;
}

/** How an upstream is, as icon and word: no meaning by colour alone. @param {Upstream | undefined} upstream */
export function health(upstream) {
  const is = condition(upstream);
  return h("span", { class: `state is-${is}` }, icon(ICONS[is] ?? "ring"), is);
}

/** Boxes as two paths: taken, and free. @param {number} slots @param {number} taken */
function boxes(slots, taken) {
  const across = Math.min(slots, ACROSS), down = Math.ceil(slots / ACROSS);
  const paths = { taken: "", free: "" };
  for (let i = 0; i < slots; i++) {
    paths[i < taken ? "taken" : "free"] += `M${(i % ACROSS) * STEP + 1} ${Math.floor(i / ACROSS) * STEP + 1}h${SIDE}v${SIDE}h-${SIDE}z`;
  }
  return { ...paths, width: across * STEP, height: down * STEP };
}

/** More slots than boxes: a bar. @param {number} share */
function bar(share) {
  const width = ACROSS * STEP, at = Math.round(Math.min(1, share) * (width - 2));
  return { taken: `M1 1h${at}v${SIDE}h-${at}z`, free: `M${at + 1} 1h${width - 2 - at}v${SIDE}H${at + 1}z`, width, height: STEP };
}

/** An upstream as a cell: its slots as boxes that fill, its state as an icon.
 * @param {string} member @param {Upstream | undefined} upstream */
export function cell(member, upstream) {
  return h("a", { key: member, memo: [upstream], class: `cell is-${condition(upstream)}`, href: link("upstreams", member), tabindex: "-1",
    title: told(member, upstream) }, () => {
    const inflight = upstream?.inflight ?? 0, slots = (upstream && room(upstream)) || Math.max(1, inflight);
    const drawn = slots > MOST_BOXES ? bar(inflight / slots) : boxes(slots, inflight);
    const is = condition(upstream), fades = upstream?.fading ?? null;
    return [
      h("svg", { class: "boxes", width: drawn.width, height: drawn.height, "aria-hidden": "true" },
        h("path", { class: "free", d: drawn.free }), h("path", { class: "taken", d: drawn.taken })),
      h("span", { class: "who" }, is === "up" ? null : icon(ICONS[is]), h("bdi", null, brief(member)),
        inflight > slots ? ` +${inflight - slots}` : null, fades === null ? null : ` ${percent(fades)}`),
      h("span", { class: "unseen" }, told(member, upstream)),
    ];
  });
}

/** What tells pods apart stands at the end of their names. @param {string} member */
function brief(member) {
  const short = member.replace(/^https?:\/\//, "");
  return short.length <= 15 ? cut(short) : `…${cut(short).slice(-13)}`;
}

/** @param {string} member @param {Upstream | undefined} upstream */
function told(member, upstream) {
  if (!upstream) return `${cut(member)}: nothing is known of it`;
  const places = [upstream.zone && `zone ${cut(upstream.zone)}`, upstream.node && `node ${cut(upstream.node)}`].filter(Boolean);
  const why = upstream.why ? ` (${cut(upstream.why, 120)})` : "";
  const fades = upstream.fading === null ? [] : [`fading in, ${percent(upstream.fading)}`];
  return [`${cut(member)}: ${condition(upstream)}${why}`, room(upstream) ? `${count(upstream.inflight)} of ${plural(room(upstream), "slot")} taken`
    : `${count(upstream.inflight)} in flight`, ...fades, ...places].join(", ");
}

/** How much of a room is taken; where none is known, how many. @param {number} used @param {number} of */
export function filled(used, of) {
  return h("span", { class: "nowrap" }, of ? [meter(used, of), ` ${count(used)} of ${count(of)}`] : `${count(used)} in flight`);
}

/** @param {number} used @param {number} of */
export function meter(used, of) {
  const share = of > 0 ? used / of : used > 0 ? 1 : 0;
  const level = share >= 1 ? "full" : share >= 0.85 ? "high" : "low";
  return h("span", { class: `meter is-${level}` }, h("span", { class: "fill", style: { width: `${Math.min(100, share * 100).toFixed(1)}%` } }));
}

/** @param {string} text @param {string} [kind] @param {string} [title] */
export function badge(text, kind = "plain", title) {
  return h("span", { class: `badge is-${kind}`, title }, text);
}

/** @param {string} label @param {() => void} run @param {Record<string, any>} [props] */
export function button(label, run, props = {}) {
  return h("button", { type: "button", ...props, onclick: run }, props.icon ? icon(props.icon) : null, label);
}

/** @param {string} path */
export function routeLink(path) {
  return h("a", { href: link("route", path) }, name(path));
}

/** @param {string} title @param {Child} content @param {Child} [beside] @param {Record<string, any>} [props] */
export function card(title, content, beside, props = {}) {
  return h("section", { class: "card", ...props }, h("div", { class: "card-head" }, h("h2", null, title), beside), content);
}

/** @param {string} text */
export function none(text) {
  return h("p", { class: "none" }, text);
}

/** @param {[Child, Child][]} pairs */
export function pairs(pairs) {
  return h("dl", null, pairs.map(([term, text]) => h("div", null, h("dt", null, term), h("dd", null, text))));
}

/** @param {string} id @param {string} label */
export function filterField(id, label) {
  const take = (/** @type {any} */ event) => {
    app.filters[id] = event.target.value;
    app.draw();
  };
  return h("label", { class: "filter" }, h("span", { class: "unseen" }, label),
    h("input", { type: "search", placeholder: label, value: app.filters[id] ?? "", oninput: take, autocomplete: "off", spellcheck: "false" }));
}

/** @param {string} id @param {string} text */
export function passes(id, text) {
  const wanted = (app.filters[id] ?? "").toLowerCase();
  return !wanted || wanted.split(/\s+/).every((word) => text.toLowerCase().includes(word));
}

/**
 * @template T
 * @typedef {{name: string, by?: (row: T) => number | string | null | undefined, cell: (row: T) => Child, right?: boolean, down?: boolean}} Column
 * `by`: what it is sorted by; `down`: at first the greatest on top.
 */

/** @type {Record<string, string[]>} */
const orders = {};

/**
 * A table that is sorted by its heads. While the pointer or the focus is in it, rows keep their places.
 * @template T
 * @param {string} id @param {string} label @param {Column<T>[]} columns @param {T[]} rows
 * @param {(row: T) => string} keyOf @param {((row: T) => unknown[]) | null} [memo] what a row depends on
 */
export function table(id, label, columns, rows, keyOf, memo = null) {
  const sort = (app.sorts[id] ??= { column: 0, down: false });
  const isHeld = document.querySelector(`#${id} tbody:hover, #${id} tbody :focus`) !== null;
  const sorted = isHeld && orders[id] ? asBefore(rows, keyOf, orders[id]) : inOrder(rows, columns[sort.column], sort.down);
  orders[id] = sorted.map(keyOf);
  const most = app.shown[id] ?? ROWS;
  const body = sorted.slice(0, most).map((row) => {
    const cells = () => columns.map((each) => h("td", { class: each.right ? "right" : null }, each.cell(row)));
    return memo ? h("tr", { key: keyOf(row), memo: memo(row) }, cells) : h("tr", { key: keyOf(row) }, cells());
  });
  const more = () => {
    app.shown[id] = most + 5 * ROWS;
    app.draw();
  };
  return [
    h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
      h("table", { id }, h("thead", null, h("tr", null, columns.map((each, i) => head(id, each, i)))), h("tbody", null, body))),
    sorted.length > most ? button(`Show ${sorted.length - most} more`, more) : null,
  ];
}

/** @param {string} id @param {Column<any>} column @param {number} place */
function head(id, column, place) {
  const sort = app.sorts[id], isBy = sort.column === place;
  const props = { scope: "col", class: column.right ? "right" : null, "aria-sort": isBy ? (sort.down ? "descending" : "ascending") : null };
  if (!column.by) return column.name ? h("th", props, column.name) : h("td", null);
  const choose = () => {
    app.sorts[id] = { column: place, down: isBy ? !sort.down : Boolean(column.down) };
    delete orders[id];
    app.draw();
  };
  return h("th", props, h("button", { type: "button", onclick: choose }, column.name, isBy ? icon(sort.down ? "falling" : "rising") : null));
}

/** @template T @param {T[]} rows @param {Column<T>} column @param {boolean} down */
function inOrder(rows, column, down) {
  const by = column.by ?? (() => 0);
  const keyed = rows.map((row) => /** @type {const} */ ([by(row), row]));
  keyed.sort(([a], [b]) => {
    if (typeof a === "string" && typeof b === "string") return (down ? -1 : 1) * natural(a, b);
    return (down ? -1 : 1) * (Number(a ?? -Infinity) - Number(b ?? -Infinity) || 0);
  });
  return keyed.map(([, row]) => row);
}

/** @template T @param {T[]} rows @param {(row: T) => string} keyOf @param {string[]} order */
function asBefore(rows, keyOf, order) {
  const place = new Map(order.map((key, i) => [key, i]));
  const at = (/** @type {T} */ row) => place.get(keyOf(row)) ?? Infinity;
  return [...rows].sort((a, b) => at(a) - at(b) || 0);
}
