// Elements as values: `h` says what should be there, `patch` changes what differs. All texts become text nodes, `visible` ones.

const SVG = "http://www.w3.org/2000/svg";
/** Controls, and marks that turn the direction of what follows: shown as what they are. */
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** @type {WeakMap<Node, VNode[]>} what was drawn last into an element */
const drawn = new WeakMap();

export function visible(/** @type {string} */ text) {
  return text.replace(HIDDEN, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * An element that should be there. `props.key` finds it again among its siblings. Where `props.memo` is as before,
 * all of it is left as it is, and `children`, a function then, is not called.
 * @param {string} tag @param {Record<string, any> | null} [props] @param {...(Child | (() => Child[]))} children
 * @returns {VNode}
 */
export function h(tag, props, ...children) {
  const lazy = children.length === 1 && typeof children[0] === "function";
  const inside = /** @type {Child[] | (() => Child[])} */ (lazy ? children[0] : children);
  return { tag, props: props ?? {}, children: inside, key: String(props?.key ?? "") };
}

export function patch(/** @type {Node} */ parent, /** @type {Child[]} */ children) {
  const wanted = /** @type {any[]} */ (children).flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false)
    .map((each) => /** @type {VNode} */ (typeof each === "object" ? each : h("", { text: visible(String(each)) })));
  const keyOf = (/** @type {VNode} */ { tag, key }, /** @type {number} */ place) => `${key ? `=${key}` : place} ${tag}`;
  const before = new Map((drawn.get(parent) ?? []).map((each, place) => [keyOf(each, place), each]));
  const now = wanted.map((each, place) => {
    const key = keyOf(each, place), old = before.get(key);
    before.delete(key);
    return realised(each, old, parent);
  });
  for (const each of before.values()) each.node?.parentNode?.removeChild(each.node);
  let at = parent.firstChild;
  for (const each of now) {
    const node = /** @type {Node} */ (each.node);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  drawn.set(parent, now);
}

/** @param {VNode} wanted @param {VNode | undefined} old what is there in its place @param {Node} parent @returns {VNode} */
function realised(wanted, old, parent) {
  const { props, children } = wanted, before = old?.props ?? {};
  if (old && props.memo?.length === before.memo?.length
    && props.memo?.every((/** @type {any} */ each, /** @type {number} */ i) => each === before.memo[i])) return old;
  const isSvg = wanted.tag === "svg" || parent instanceof SVGElement;
  const node = /** @type {any} */ (wanted.node = old?.node ?? (!wanted.tag ? document.createTextNode("")
    : isSvg ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag)));
  if (!wanted.tag) {
    if (before.text !== props.text) node.data = props.text;
    return wanted;
  }
  for (const name of Object.keys(before)) if (!(name in props)) set(node, name, null);
  for (const [name, value] of Object.entries(props)) if (value !== before[name]) set(node, name, value);
  patch(node, typeof children === "function" ? children() : children);
  props.ref?.(node);
  return wanted;
}

function set(/** @type {any} */ element, /** @type {string} */ name, /** @type {any} */ value) {
  if (name === "key" || name === "memo" || name === "ref") return;
  if (name === "breadth") element.style.width = value ?? ""; // an attribute `style` is what the security policy refuses
  else if (name.startsWith("on") || name === "value") element[name] = value;
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : visible(String(value)));
}

/** @param {string} name of a symbol of index.html @param {string} [label] read aloud; without it the icon is not */
export function icon(name, label) {
  return h("svg", { class: "icon", ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) }, h("use", { href: `#i-${name}` }));
}
