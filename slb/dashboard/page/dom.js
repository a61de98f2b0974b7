// Elements as values: `h` says what should be there, `patch` changes what differs. All texts become text nodes.

const SVG = "http://www.w3.org/2000/svg";

/** @type {WeakMap<Node, VNode[]>} what was drawn last into an element */
const drawn = new WeakMap();

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

/** @param {Node} parent @param {Child[]} children */
export function patch(parent, children) {
  const wanted = flat(children, []);
  /** @type {Map<string, VNode>} */
  const before = new Map();
  (drawn.get(parent) ?? []).forEach((each, place) => before.set(each.key || `${place} ${each.tag}`, each));
  const now = wanted.map((each, place) => {
    const key = each.key || `${place} ${each.tag}`;
    const old = before.get(key);
    if (!old || old.tag !== each.tag) return created(each, parent);
    before.delete(key);
    return updated(old, each);
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

/** @param {Child[]} children @param {VNode[]} into @returns {VNode[]} */
function flat(children, into) {
  for (const each of children) {
    if (Array.isArray(each)) flat(each, into);
    else if (typeof each === "object" && each) into.push(each);
    else if (each !== null && each !== undefined && each !== false) {
      into.push({ tag: "", props: { text: String(each) }, children: [], key: "" });
    }
  }
  return into;
}

/** @param {VNode} wanted @param {Node} parent @returns {VNode} */
function created(wanted, parent) {
  if (!wanted.tag) {
    wanted.node = document.createTextNode(wanted.props.text);
    return wanted;
  }
  const inSvg = wanted.tag === "svg" || (parent instanceof SVGElement && parent.tagName !== "foreignObject");
  const element = inSvg ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
  wanted.node = element;
  for (const [name, value] of Object.entries(wanted.props)) set(element, name, value, undefined);
  patch(element, inside(wanted));
  wanted.props.ref?.(element);
  return wanted;
}

/** @param {VNode} old @param {VNode} wanted @returns {VNode} */
function updated(old, wanted) {
  const memo = wanted.props.memo, before = old.props.memo;
  if (memo && before && memo.length === before.length && memo.every((/** @type {any} */ each, /** @type {number} */ i) => each === before[i])) {
    return old;
  }
  wanted.node = old.node;
  if (!wanted.tag) {
    const text = /** @type {Text} */ (wanted.node);
    if (old.props.text !== wanted.props.text) text.data = wanted.props.text;
    return wanted;
  }
  const element = /** @type {HTMLElement} */ (wanted.node);
  for (const name of Object.keys(old.props)) if (!(name in wanted.props)) set(element, name, null, old.props[name]);
  for (const [name, value] of Object.entries(wanted.props)) {
    if (value !== old.props[name]) set(element, name, value, old.props[name]);
  }
  patch(element, inside(wanted));
  wanted.props.ref?.(element);
  return wanted;
}

/** @param {VNode} wanted @returns {Child[]} */
function inside(wanted) {
  return typeof wanted.children === "function" ? wanted.children() : wanted.children;
}

/** @param {any} element @param {string} name @param {any} value @param {any} before */
function set(element, name, value, before) {
  if (name === "key" || name === "memo" || name === "ref") return;
  if (name === "style") setStyle(element.style, value ?? {}, before ?? {});
  else if (name.startsWith("on") || name === "value" || name === "checked" || name === "open") element[name] = value;
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** By CSSOM, which the content security policy allows; an attribute would be refused.
 * @param {CSSStyleDeclaration} style @param {Record<string, any>} value @param {Record<string, any>} before */
function setStyle(style, value, before) {
  for (const name of Object.keys(before)) if (!(name in value)) style.removeProperty(name);
  for (const [name, each] of Object.entries(value)) if (each !== before[name]) style.setProperty(name, String(each));
}

/** @param {string} name of a symbol of index.html @param {string} [label] read aloud; without it the icon is not */
export function icon(name, label) {
  const props = label ? { class: "icon", role: "img", "aria-label": label } : { class: "icon", "aria-hidden": "true" };
  return h("svg", props, h("use", { href: `#i-${name}` }));
}
