// The difference of two texts, line by line.

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
