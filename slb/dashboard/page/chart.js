// Lines: small ones as SVG, large ones by uPlot.

import { h } from "./dom.js";
import { clock } from "./format.js";

/** @type {Map<HTMLElement, {plot: uPlot, last: unknown, size: ResizeObserver}>} */
const plots = new Map();
const POINTS = 120, HEIGHT = 112; // of a small line; of a large one, in pixels

/** Ends those that are shown no more, or all, as colours are others now. @param {boolean} [all] */
export function repaint(all = true) {
  for (const [element, { plot, size }] of plots) {
    if (element.isConnected && !all) continue;
    plot.destroy();
    size.disconnect();
    plots.delete(element);
  }
}

/** Its legend has the values under the cursor, and the latest ones where there is none.
 * @param {string} label @param {Figures} time @param {Line[]} lines @param {(value: number) => string} axis */
export function chart(label, time, lines, axis) {
  const last = `${time[0]} ${time.length} ${time.at(-1)} ${lines.map((each) => each.values.at(-1))}`, data = [time, ...lines.map((each) => each.values)];
  const ref = (/** @type {HTMLElement} */ element) => {
    repaint(false);
    const known = plots.get(element);
    if (known?.last === last || time.length < 2) return;
    known?.plot.setData(data);
    if (known) known.last = last;
    else requestAnimationFrame(() => { // once it has its place and its width
      if (plots.has(element) || !element.isConnected) return;
      const plot = new uPlot(options(element, lines, axis), data, element);
      const size = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
      size.observe(element);
      plots.set(element, { plot, last, size });
    });
  };
  return h("div", { key: lines.map((each) => each.label).join(), class: "chart", role: "img", "aria-label": `${label}, the last hour`, ref });
}

/** @param {HTMLElement} element @param {Line[]} lines @param {(value: number) => string} axis */
function options(element, lines, axis) {
  const colour = (/** @type {string} */ name) => getComputedStyle(element).getPropertyValue(name);
  const look = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const range = (/** @type {uPlot} */ _, /** @type {Figures[0]} */ low, /** @type {Figures[0]} */ high) => [Math.min(0, low ?? 0), (high || 1) * 1.1];
  const drawn = lines.map((each, i) => ({
    label: each.label, stroke: colour(each.colour), width: 1.5, points: { show: false }, fill: i === 0 ? colour("--wash") : undefined,
    dash: each.dash, spanGaps: each.spans ?? false,
    value: (/** @type {uPlot} */ plot, /** @type {Figures[0]} */ value, /** @type {number} */ _, /** @type {Figures[0]} */ at) =>
      each.show(at == null ? plot.data[i + 1].at(-1) ?? null : value),
  }));
  const ticks = (/** @type {(value: number) => string} */ show) => (/** @type {uPlot} */ _, /** @type {number[]} */ at) => at.map(show);
  return {
    width: element.clientWidth, height: HEIGHT, padding: [8, 22, 0, 0],
    cursor: { sync: { key: uPlot.sync("hour").key }, drag: { x: false, y: false }, points: { size: 5 } },
    legend: { live: true, markers: { width: 2, fill: (/** @type {uPlot} */ _, /** @type {number} */ i) => drawn[i - 1]?.stroke ?? "" } },
    scales: { x: { time: true }, y: { range } },
    axes: [{ ...look, space: 70, size: 26, values: ticks((time) => clock(time).slice(0, 5)) }, { ...look, size: 58, space: 30, values: ticks(axis) }],
    series: [{ value: (/** @type {uPlot} */ _, /** @type {Figures[0]} */ time) => (time ? clock(time) : "latest") }, ...drawn],
  };
}

/** The last hour as one small line, with gaps where nothing is known. @param {Figures} time @param {Figures} values */
export function spark(time, values) {
  return h("svg", { class: "spark", viewBox: "0 0 120 24", preserveAspectRatio: "none", "aria-hidden": "true",
    memo: [time.at(-1), values.length] }, () => {
    const share = Math.ceil(values.length / POINTS) || 1, points = /** @type {number[]} */ ([]); // -1: nothing is known
    for (let i = 0; i < values.length; i += share) points.push(Math.max(...values.slice(i, i + share).map((each) => each ?? -1)));
    const most = Math.max(...points, 1e-9), step = 120 / Math.max(1, points.length - 1);
    let line = "", wash = "";
    points.forEach((each, i) => {
      if (each < 0) return;
      const x = (i * step).toFixed(1), y = (23 - (each / most) * 21).toFixed(1), begins = !(points[i - 1] >= 0);
      line += `${begins ? `M${x} ${y}` : ""}L${x} ${y}`;
      wash += `${begins ? `M${x} 24` : ""}L${x} ${y}${points[i + 1] >= 0 ? "" : `L${x} 24z`}`;
    });
    return line ? [h("path", { class: "wash", d: wash }), h("path", { class: "line", d: line, "vector-effect": "non-scaling-stroke" })] : [];
  });
}
