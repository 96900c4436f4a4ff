// Fields for points in time. They follow the chosen zone; addresses carry UTC.

import { h } from "./dom.js";
import { zone } from "./format.js";

const pad = (value) => String(value).padStart(2, "0");

/** What a field of type `datetime-local` shows for a time of the API. */
export function inputValue(text) {
  const at = new Date(text ?? "");
  if (Number.isNaN(at.getTime())) return "";
  if (zone() === "utc") return at.toISOString().slice(0, 19);
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
}

/** The time of the API for what such a field contains; undefined if it is empty. */
export function parseInput(value) {
  const at = new Date(zone() === "utc" && value ? `${value}Z` : value);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

export const timeInput = (name, text, onchange) =>
  h("input", { type: "datetime-local", step: "1", name, value: inputValue(text), onchange, title: zone() === "utc" ? "UTC" : "Local time" });
