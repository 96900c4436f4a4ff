// Addresses of views: fragments, so that keys and filters reach no server log. Everything that a view shows is in them.

/** "#/messages?state=failed". Empty parameters are left out. */
export function address(path, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "") search.append(name, value);
  const text = search.toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The path and the parameters of the current address. */
export function current() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { path: path.split("/").filter(Boolean).map(decode), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function go(target) {
  location.hash = target;
}

/** Changes the address without a step back to what it was. */
export function replace(target) {
  history.replaceState(null, "", target);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
