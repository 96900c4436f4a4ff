// Shows a payload without parsing it: tokens are copied as they are written, so `12345678901234567890`, `1e400`, `1.10`, the
// order of members and escapes stay. Only white space between tokens is changed. And the difference of two texts.

import { h } from "./dom.js";
import { marked } from "./format.js";

// White space, a string, a number or a word, or a structural character. What is none of these is passed on as it is.
const TOKEN = /[ \t\r\n]+|"(?:[^"\\]|\\.)*"?|[^\s"{}[\],:]+|[{}[\],:]/gsu;

/** The most lines and characters that are shown; the rest can be downloaded. */
export const MOST_LINES = 2000;
export const MOST_CHARACTERS = 256 * 1024;

/** The lines of a JSON text, each an array of `{text, kind}`; `isCut` if there are more. */
export function lines(text, mostLines = MOST_LINES, mostCharacters = MOST_CHARACTERS) {
  const all = [];
  let line = [];
  let depth = 0;
  let isEmpty = false;
  let position = 0;
  const isFull = () => all.length >= mostLines;
  const breakLine = () => {
    all.push(line);
    line = depth > 0 ? [{ text: "  ".repeat(Math.min(depth, 64)), kind: "space" }] : [];
  };
  // A long text is cut before the tokenizer sees it: a single string may be all of it.
  const shown = text.length > mostCharacters ? text.slice(0, mostCharacters) : text;
  const tokens = shown.matchAll(TOKEN);
  for (const { 0: token, index } of tokens) {
    if (isFull()) break;
    position = index + token.length;
    const first = token[0];
    if (first === " " || first === "\t" || first === "\r" || first === "\n") continue;
    if (first === "{" || first === "[") {
      if (isEmpty) breakLine();
      line.push({ text: token, kind: "mark" });
      depth += 1;
      isEmpty = true;
      continue;
    }
    if (first === "}" || first === "]") {
      depth = Math.max(0, depth - 1);
      if (!isEmpty) breakLine();
      isEmpty = false;
      line.push({ text: token, kind: "mark" });
      continue;
    }
    if (isEmpty) breakLine();
    isEmpty = false;
    if (first === ",") {
      line.push({ text: token, kind: "mark" });
      breakLine();
    } else if (first === ":") {
      const name = line.at(-1);
      if (name?.kind === "string") name.kind = "name";
      line.push({ text: token, kind: "mark" }, { text: " ", kind: "space" });
    } else {
      line.push({ text: token, kind: first === '"' ? "string" : /^[-\d]/.test(first) ? "number" : "word" });
    }
  }
  if (line.length && !isFull()) all.push(line);
  return { lines: all, isCut: shown.length < text.length || position < shown.length };
}

/** The text of the lines, indented. */
export const indented = (text) =>
  lines(text, Infinity, Infinity).lines.map((line) => line.map((token) => token.text).join("")).join("\n");

/**
 * A block with numbered lines. `attributes` are put on the element whose text is that of the lines. `isMarked` says which
 * lines are marked, with `note` as the explanation of the mark.
 */
export function codeBlock(allLines, label, attributes = {}, isMarked = () => false) {
  const body = [];
  allLines.forEach((line, number) => {
    const parts = line.map(({ text, kind }) => (kind === "string" || kind === "number" || kind === "word"
      ? h("span", { class: `json-${kind}` }, marked(text)) : marked(text)));
    body.push(isMarked(number) ? h("mark", { class: "added" }, parts) : parts, number < allLines.length - 1 ? "\n" : "");
  });
  return h("div", { class: "code", tabindex: "0", role: "region", "aria-label": label },
    h("pre", { class: "numbers", "aria-hidden": "true" }, allLines.map((_, number) => number + 1).join("\n")),
    h("pre", { class: "text" }, h("bdi", attributes, body)));
}

/** Lines of a text that need not be JSON. */
export function plainLines(text, most = MOST_LINES) {
  const all = text.slice(0, MOST_CHARACTERS).split("\n");
  return { lines: all.slice(0, most).map((line) => [{ text: line, kind: "mark" }]), isCut: all.length > most || text.length > MOST_CHARACTERS };
}

/** JSON is indented, other text stays as it is. */
export const bodyLines = (text) => (/^\s*[{["]/.test(text) ? lines(text) : plainLines(text));

/** The texts of the members of an object, by name, as they are written. */
export const memberTexts = (text) => new Map(childTexts(text).map(({ name, value }) => [JSON.parse(name), value]));

/** The texts of the elements of an array. */
export const elementTexts = (text) => childTexts(text).map(({ value }) => value);

/** The text with a blank for white space that has line breaks. Strings have none. */
export const onOneLine = (text) => text.replace(TOKEN, (token) => (/^[\r\n\t ]/.test(token) && /[\r\n]/.test(token) ? " " : token));

function childTexts(text) {
  const children = [];
  let depth = 0;
  let start = null;
  let name = null;
  const end = (index) => {
    if (start !== null) children.push({ name, value: text.slice(start, index).trim() });
    start = null;
    name = null;
  };
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    const first = token[0];
    if ((first === "}" || first === "]") && --depth === 0) end(index);
    if (depth === 1 && first === ",") end(index);
    else if (depth === 1 && first === ":") {
      name = text.slice(start, index).trim();
      start = null;
    } else if (depth >= 1 && start === null && !/\s/.test(first)) start = index;
    if (first === "{" || first === "[") depth += 1;
  }
  return children;
}

/** Above this many pairs of lines, everything between the common beginning and end counts as replaced. */
const MOST_PAIRS = 1_000_000;

/** `[{kind: "same" | "removed" | "added", text}]`, which lead from `before` to `after`, both arrays of lines. */
export function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < before.length - start && end < after.length - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const same = (lines) => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(before.slice(0, start)),
    ...middle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...same(before.slice(before.length - end)),
  ];
}

/** By the longest common subsequence of lines. */
function middle(before, after) {
  const removed = (text) => ({ kind: "removed", text });
  const added = (text) => ({ kind: "added", text });
  if (before.length * after.length > MOST_PAIRS) return [...before.map(removed), ...after.map(added)];
  const width = after.length + 1;
  // The length of the longest common subsequence of what follows.
  const lengths = new Uint32Array((before.length + 1) * width);
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      lengths[row * width + column] = before[row] === after[column]
        ? lengths[(row + 1) * width + column + 1] + 1
        : Math.max(lengths[(row + 1) * width + column], lengths[row * width + column + 1]);
    }
  }
  const result = [];
  let row = 0;
  let column = 0;
  while (row < before.length && column < after.length) {
    if (before[row] === after[column]) {
      result.push({ kind: "same", text: before[row] });
      row += 1;
      column += 1;
    } else if (lengths[(row + 1) * width + column] >= lengths[row * width + column + 1]) result.push(removed(before[row++]));
    else result.push(added(after[column++]));
  }
  return [...result, ...before.slice(row).map(removed), ...after.slice(column).map(added)];
}
