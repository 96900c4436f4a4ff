// What this browser remembers: the form of times, the theme, whether single keys are shortcuts, and saved views. Never a key.

const STORED = "postern.console";

const defaults = { times: "relative", theme: "system", shortcuts: true, views: [] };

const choices = { times: ["relative", "local", "utc"], theme: ["system", "light", "dark"], shortcuts: [true, false] };

/** The most saved views. */
export const MOST_VIEWS = 20;

function load() {
  const loaded = structuredClone(defaults);
  try {
    const stored = JSON.parse(localStorage.getItem(STORED)) ?? {};
    for (const name in choices) if (choices[name].includes(stored[name])) loaded[name] = stored[name];
    // A view is an address of this page; anything else that is stored is ignored.
    if (Array.isArray(stored.views)) {
      loaded.views = stored.views
        .filter((view) => typeof view?.name === "string" && typeof view?.address === "string" && view.address.startsWith("#/"))
        .map(({ name, address }) => ({ name: name.slice(0, 80), address }))
        .slice(0, MOST_VIEWS);
    }
  } catch {
    // Storage is switched off, or was written by something else.
  }
  return loaded;
}

export const settings = load();

/** Changes settings and remembers them. */
export function change(changes) {
  Object.assign(settings, changes);
  try {
    localStorage.setItem(STORED, JSON.stringify(settings));
  } catch {
    // They apply until the page is closed.
  }
  applyTheme();
}

export function applyTheme() {
  if (settings.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = settings.theme;
}

/** The choice after the current one. */
export function next(name) {
  const all = choices[name];
  change({ [name]: all[(all.indexOf(settings[name]) + 1) % all.length] });
}
