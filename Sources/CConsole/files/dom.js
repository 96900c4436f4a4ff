// Builds and updates elements. A view returns descriptions, made by `h` and `s`; `morph` makes the page match them and
// keeps each element whose tag and key are the same, so that focus, selection and scroll positions survive a redraw.
// Text only ever becomes a text node, so nothing that comes from outside can become an element.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

// What an element was last made to match.
const descriptions = new WeakMap();

/** Describes an HTML element. A prop `key` identifies it among its siblings; null and false leave a prop or child out. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flatten(children), namespace: null };
}

export function s(tag, props, ...children) {
  return { tag, props: props ?? {}, children: flatten(children), namespace: SVG_NAMESPACE };
}

/** Makes the children of `parent` match `children`. */
function morph(parent, children) {
  const wanted = flatten([children]);
  const { keyed, free } = inventory(parent);
  const nodes = wanted.map((description) => {
    if (typeof description === "string") return textNode(free, description);
    const old = description.props.key === undefined ? takeFree(free, description) : keyed.get(keyOf(description));
    return patch(old, description);
  });

  const kept = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!kept.has(node)) node.remove();
  let position = parent.firstChild;
  for (const node of nodes) {
    if (node === position) position = position.nextSibling;
    else parent.insertBefore(node, position);
  }
}

/** Like `morph`, and gives the focus back to an element that lost it because it was moved. */
export function redraw(root, children) {
  const focused = document.activeElement;
  morph(root, children);
  if (focused !== document.activeElement && focused?.isConnected) focused.focus({ preventScroll: true });
}

function flatten(children, into = []) {
  for (const child of children) {
    if (Array.isArray(child)) flatten(child, into);
    else if (typeof child === "object" && child !== null) into.push(child);
    else if (child !== null && child !== undefined && child !== false && child !== "") into.push(String(child));
  }
  return into;
}

const keyOf = ({ tag, props }) => `${tag} ${props.key}`;

/** The nodes below `parent` that can be used again: those with a key by their key, the others in their order. */
function inventory(parent) {
  const keyed = new Map();
  const free = [];
  for (const node of parent.childNodes) {
    const description = descriptions.get(node);
    if (description && description.props.key !== undefined) keyed.set(keyOf(description), node);
    else free.push(node);
  }
  return { keyed, free };
}

function takeFree(free, { tag }) {
  const index = free.findIndex((node) => descriptions.get(node)?.tag === tag);
  return index < 0 ? undefined : free.splice(0, index + 1)[index];
}

function textNode(free, text) {
  const node = free[0]?.nodeType === Node.TEXT_NODE ? free.shift() : document.createTextNode(text);
  if (node.data !== text) node.data = text;
  return node;
}

function patch(old, description) {
  const { tag, props, children, namespace } = description;
  const element = old ?? (namespace ? document.createElementNS(namespace, tag) : document.createElement(tag));
  const before = old ? descriptions.get(old) : undefined;
  // A view may keep a description that is costly to make.
  if (before === description) return element;
  descriptions.set(element, description);
  morph(element, children);
  for (const name in before?.props) if (!(name in props)) setProp(element, name, null);
  for (const name in props) if (props[name] !== before?.props[name]) setProp(element, name, props[name]);
  // Its options may have come after its value.
  if (tag === "select" && element.value !== props.value) element.value = props.value;
  if (!old) props.ref?.(element);
  return element;
}

// What the user changes. It is set only if the view changes it, so a redraw does not undo what was typed.
const PROPERTIES = new Set(["value", "checked", "indeterminate"]);

function setProp(element, name, value) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) {
    if (value && typeof value !== "function") throw new TypeError(`${name} is not a function`);
    // What a handler returns is ignored: false would prevent the default.
    element[name] = value ? (event) => void value(event) : null;
  } else if (PROPERTIES.has(name)) {
    element[name] = value ?? (name === "value" ? "" : false);
  } else if (name === "style") {
    // Properties, not text: the policy forbids the attribute.
    element.removeAttribute("style");
    for (const property in value) element.style.setProperty(property, value[property]);
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    if (name === "href" && !String(value).startsWith("#")) throw new TypeError("a link leads to another view");
    element.setAttribute(name, value === true ? "" : value);
  }
}
