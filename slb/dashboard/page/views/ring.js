// The ring of a route as a circle: how many of the keys each upstream has.

import { h } from "../dom.js";
import { cut, name, percent } from "../format.js";

const RADIUS = 54, MIDDLE = 64, SHOWN = 12, COLOURS = 8;

/** @param {[string, number][]} shares */
export function ring(shares) {
  const sorted = [...shares].sort(([, a], [, b]) => b - a);
  let from = 0;
  const arcs = sorted.map(([member, share], i) => {
    const arc = h("path", { key: member, class: `arc arc-${i % COLOURS}`, d: arcPath(from, from + share) },
      h("title", null, `${cut(member)}: ${percent(share)}`));
    from += share;
    return arc;
  });
  return h("div", { class: "ring" },
    h("svg", { viewBox: "0 0 128 128", role: "img", "aria-label": `Key shares of ${shares.length} upstreams` }, arcs,
      h("text", { x: MIDDLE, y: MIDDLE + 5, "text-anchor": "middle" }, String(shares.length))),
    h("ol", null, sorted.slice(0, SHOWN).map(([member, share], i) => h("li", { key: member }, h("span", { class: `dot arc-${i % COLOURS}` }),
      name(member, 28), h("b", null, percent(share)))),
      sorted.length > SHOWN ? h("li", { class: "dim" }, `and ${sorted.length - SHOWN} more`) : null));
}

/** @param {number} from @param {number} to shares of the circle */
function arcPath(from, to) {
  const at = (/** @type {number} */ share) => {
    const angle = (share - 0.25) * 2 * Math.PI;
    return `${(MIDDLE + RADIUS * Math.cos(angle)).toFixed(2)} ${(MIDDLE + RADIUS * Math.sin(angle)).toFixed(2)}`;
  };
  const end = Math.min(to, from + 0.9999);
  return `M${at(from)}A${RADIUS} ${RADIUS} 0 ${end - from > 0.5 ? 1 : 0} 1 ${at(end)}`;
}
