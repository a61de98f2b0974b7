// What views are put together from: tables, cells, meters, badges.

import { app, link, ticked } from "./app.js";
import { h, icon } from "./dom.js";
import { clock, count, cut, name, natural, percent, plural, rate, span } from "./format.js";
import { condition, fleet, room, trouble } from "./state.js";

const ROWS = 200; // of a table, until more are asked for
const HALF_A_DAY = 43_200; // seconds, after which a time has its date
const ACROSS = 8, MOST_BOXES = 40, STEP = 8, SIDE = 6; // boxes of a cell: how many, and pixels
const ICONS = new Map([["up", "up"], ["failing", "warn"], ["stuck", "warn"], ["busy", "warn"], ["down", "cross"], ["ejected", "eject"], ["draining", "pause"]]);

/** How an upstream is, as icon and word: no meaning by colour alone. @param {Upstream | undefined} upstream */
export function health(upstream) {
  const is = condition(upstream);
  return h("span", { class: `state is-${is}` }, icon(ICONS.get(is) ?? "ring"), is);
}

/** An upstream by its address and what else it is called. @param {string} member @param {number} [most] */
export function who(member, most) {
  const node = fleet.upstreams.get(member)?.node;
  return [name(member, most), node ? [" ", h("span", { class: "node" }, name(node, 24))] : null];
}

/** Since when something is so. @param {number | null} at seconds since 1970 */
export function since(at) {
  if (at === null) return null;
  const ago = Math.max(0, ticked() - at), date = ago > HALF_A_DAY ? `${new Date(at * 1000).toLocaleDateString("en-GB")} ` : "";
  return h("span", { class: "since" }, `since ${date}${clock(at)}, ${span(ago)}`);
}

/** What is wrong with an upstream, in words. @param {string} member */
export function reason(member) {
  const { grave, why, since: at } = trouble(member);
  return why || at ? h("small", { class: `why is-grave-${grave}` }, cut(why, 160), why && at ? ", " : null, since(at)) : null;
}

/** @param {number} slots @param {number} taken */
function boxes(slots, taken) {
  const path = { taken: "", free: "" };
  for (let i = 0; i < slots; i++) {
    path[i < taken ? "taken" : "free"] += `M${(i % ACROSS) * STEP + 1} ${Math.floor(i / ACROSS) * STEP + 1}h${SIDE}v${SIDE}h-${SIDE}z`;
  }
  const size = { width: Math.min(slots, ACROSS) * STEP, height: Math.ceil(slots / ACROSS) * STEP };
  return h("svg", { class: "boxes", ...size, "aria-hidden": "true" },
    h("path", { class: "free", d: path.free }), h("path", { class: "taken", d: path.taken }));
}

/** An upstream as a cell: its slots as boxes that fill, its state as an icon.
 * @param {string} member @param {Upstream | undefined} upstream */
export function cell(member, upstream) {
  const is = condition(upstream), text = told(member, upstream), short = member.replace(/^https?:\/\//, "");
  return h("a", { key: member, memo: [upstream], class: `cell is-${is}`, href: link("upstreams", member), tabindex: "-1", title: text }, () => {
    const inflight = upstream?.inflight ?? 0, slots = (upstream && room(upstream)) || Math.max(1, inflight), fades = upstream?.fading ?? null;
    return [
      slots > MOST_BOXES ? meter(inflight, slots) : boxes(slots, inflight),
      h("span", { class: "who" }, is === "up" ? null : icon(ICONS.get(is) ?? "ring"),
        h("bdi", null, short.length <= 15 ? cut(short) : `…${cut(short).slice(-13)}`), // what tells pods apart stands at the end
        inflight > slots ? ` +${inflight - slots}` : null, fades === null ? null : ` ${percent(fades)}`),
      upstream?.node ? h("span", { class: "node" }, h("bdi", null, cut(upstream.node, 18))) : null,
      h("span", { class: "unseen" }, text),
    ];
  });
}

function told(/** @type {string} */ member, /** @type {Upstream | undefined} */ upstream) {
  if (!upstream) return `${cut(member)}: nothing is known of it`;
  const { fading, inflight, node, why, zone } = upstream, slots = room(upstream);
  return [`${cut(member)}: ${condition(upstream)}${why && ` (${cut(why, 120)})`}`,
    slots ? `${count(inflight)} of ${plural(slots, "slot")} taken` : `${count(inflight)} in flight`,
    fading !== null && `fading in, ${percent(fading)}`, zone && `zone ${cut(zone)}`, node && `node ${cut(node)}`].filter(Boolean).join(", ");
}

/** How much of a room is taken; where none is known, how many. @param {number} used @param {number} of */
export function filled(used, of) {
  return h("span", { class: "nowrap" }, of ? [meter(used, of), ` ${count(used)} of ${count(of)}`] : `${count(used)} in flight`);
}

function meter(/** @type {number} */ used, /** @type {number} */ of) {
  const share = used / of, level = share >= 1 ? "full" : share >= 0.85 ? "high" : "low";
  return h("span", { class: `meter is-${level}` }, h("span", { class: "fill", breadth: `${Math.min(100, share * 100).toFixed(1)}%` }));
}

/** @param {string} text @param {string} [kind] @param {string} [title] */
export function badge(text, kind = "plain", title) {
  return h("span", { class: `badge is-${kind}`, title }, text);
}

/** @param {string} label @param {() => void} run @param {Record<string, any>} [props] */
export function button(label, run, props = {}) {
  return h("button", { type: "button", ...props, onclick: run }, props.icon ? icon(props.icon) : null, label);
}

/** One of many, such as in each row of a table. @param {string} label @param {() => void} run @param {string} [said] of whom */
export function quiet(label, run, said) {
  return button(label, run, { class: "quiet", "aria-label": said });
}

export function routeLink(/** @type {string} */ path) {
  return h("a", { href: link("route", path) }, name(path));
}

/** @param {string} title @param {Child} content @param {Child} [beside] */
export function card(title, content, beside) {
  return h("section", { class: "card" }, h("div", { class: "card-head" }, h("h2", null, title), beside), content);
}

/** @param {string} label @param {string} figure @param {boolean} isBad @param {...Child} below */
export function tile(label, figure, isBad, ...below) {
  return h("div", { class: isBad ? "tile is-bad" : "tile" }, h("span", { class: "label" }, label), h("strong", null, figure), below);
}

export function none(/** @type {string} */ text) {
  return h("p", { class: "none" }, text);
}

export function pairs(/** @type {[Child, Child][]} */ pairs) {
  return h("dl", null, pairs.map(([term, text]) => h("div", null, h("dt", null, term), h("dd", null, text))));
}

export function filterField(/** @type {string} */ id, /** @type {string} */ label) {
  const take = (/** @type {any} */ event) => {
    app.filters[id] = event.target.value;
    app.draw();
  };
  return h("label", { class: "filter" }, h("span", { class: "unseen" }, label),
    h("input", { type: "search", placeholder: label, value: app.filters[id] ?? "", oninput: take, autocomplete: "off", spellcheck: "false" }));
}

export function passes(/** @type {string} */ id, /** @type {string} */ text) {
  return (app.filters[id] ?? "").toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));
}

/** Of a figure that should be 0. @param {number | null | undefined} value */
export function alarming(value, show = rate) {
  return h("span", { class: value ? "bad" : "dim" }, show(value));
}

/** A column of figures: chosen, it has the greatest on top. @template T @param {string} name
 * @param {(row: T) => number | null | undefined} by @param {(value: number | null | undefined) => Child} show @returns {Column<T>} */
export function figures(name, by, show) {
  return { name, right: true, down: true, by, cell: (row) => show(by(row)) };
}

/** A column of names. @template T @param {string} title @param {(row: T) => string} by @param {number} [most] @returns {Column<T>} */
export function names(title, by, most) {
  return { name: title, by, cell: (row) => name(by(row), most) };
}

/** What each is sorted by, how many of its rows are shown, and the places that they had.
 * @type {Record<string, {column: number, down: boolean, most: number, places?: Map<string, number>}>} */
const tables = {};

/**
 * A table that is sorted by its heads, at first by the one that is `first`, or the first; rows that are alike stay as they come.
 * While the pointer or the focus is in it, rows keep their places.
 * @template T
 * @param {string} id @param {string} label @param {T[]} rows @param {(row: T) => string} keyOf
 * @param {(Column<T> | false)[]} all columns, as the rights allow @param {(row: T) => unknown[]} [memo] what a row depends on
 * @param {(row: T) => number} [grave] how bad it is with a row: 0 for not at all
 */
export function table(id, label, rows, keyOf, all, memo, grave) {
  const columns = all.filter((each) => each !== false);
  const first = Math.max(0, columns.findIndex((each) => each.first));
  const state = (tables[id] ??= { column: first, down: Boolean(columns[first].down), most: ROWS }), { column, down, most } = state;
  const places = document.querySelector(`#${id} tbody:hover, #${id} tbody :focus`) && state.places;
  const sorted = places ? sortedBy(rows, (row) => places.get(keyOf(row)) ?? Infinity, false) : sortedBy(rows, columns[column]?.by, down);
  state.places = new Map(sorted.map((row, i) => [keyOf(row), i]));
  const change = (/** @type {Partial<typeof state>} */ to) => {
    Object.assign(state, to);
    app.draw();
  };
  const heads = columns.map((each, i) => {
    const isBy = column === i, props = { scope: "col", class: each.right ? "right" : null };
    if (!each.by) return each.name ? h("th", props, each.name) : h("td", null);
    const choose = () => change({ column: i, down: isBy ? !down : Boolean(each.down), places: undefined });
    return h("th", { ...props, "aria-sort": isBy ? (down ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: choose }, each.name, isBy ? icon(down ? "falling" : "rising") : null));
  });
  const body = sorted.slice(0, most).map((row) => h("tr", { key: keyOf(row), class: grave?.(row) ? `is-grave-${grave(row)}` : null,
    memo: memo && [...memo(row), columns.length] }, () => columns.map((each) =>
    h("td", { class: each.right ? "right" : each.first ? "first" : each.name ? null : "acts", "data-label": each.name || null }, each.cell(row)))));
  return [
    h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" },
      h("table", { id }, h("thead", null, h("tr", null, heads)), h("tbody", null, body))),
    sorted.length > most ? button(`Show ${sorted.length - most} more`, () => change({ most: most + 5 * ROWS })) : null,
  ];
}

/** @template T @param {T[]} rows @param {Column<T>["by"]} by @param {boolean} down */
function sortedBy(rows, by, down) {
  const keyed = rows.map((row) => /** @type {const} */ ([by?.(row), row]));
  keyed.sort(([a], [b]) => (down ? -1 : 1) * (typeof a === "string" && typeof b === "string" ? natural(a, b)
    : Number(a ?? -Infinity) - Number(b ?? -Infinity) || 0));
  return keyed.map(([, row]) => row);
}
