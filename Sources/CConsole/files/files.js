// Copies text and saves files.

import { toast } from "./dialogs.js";

/** Saves a file, as a download. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Copies text. A page from plain HTTP on a name has no clipboard; a selection can be copied there, too. */
export async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelection(text);
    toast(`${what} copied.`);
  } catch {
    toast(`${what} could not be copied: the browser does not permit it.`, { isFailure: true });
  }
}

function copySelection(text) {
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.className = "hidden";
  area.value = text;
  // A modal dialog makes everything outside of it inert.
  (document.querySelector("dialog[open]:last-of-type") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus({ preventScroll: true });
  if (!isCopied) throw new Error("not copied");
}
