// Icons of 16 by 16, drawn as lines in the color of the text.

import { s } from "./dom.js";

const PATHS = {
  logo: "M3 14V7a5 5 0 0 1 10 0v7M6.5 14V8a1.5 1.5 0 0 1 3 0v6M2 14h4.5M9.5 14H14",
  check: "M3 8.5 6.5 12 13 4.5",
  cross: "M4 4l8 8M12 4l-8 8",
  alert: "M8 2 14.5 13.5h-13ZM8 6.5v3M8 11.6v.1",
  lock: "M4 7.5h8V13H4ZM5.5 7.5V5.5a2.5 2.5 0 0 1 5 0v2",
  wrench: "M9.5 6.5 4 12a1.2 1.2 0 0 0 1.7 1.7L11 8.3a3 3 0 0 0 3-4.3l-2 2-1.7-1.7 2-2a3 3 0 0 0-2.8 4.2Z",
  pause: "M5.5 4v8M10.5 4v8",
  play: "M5 3.5 12 8l-7 4.5Z",
  off: "M8 2.5v5M4.8 4.5a5 5 0 1 0 6.4 0",
  clock: "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3.2l2.2 1.3",
  ban: "M8 2.5a5.5 5.5 0 1 0 .01 0M6 6l4 4M10 6l-4 4",
  down: "M8 3v9M4 8.5 8 12.5l4-4",
  right: "M3 8h9M8.5 4.5 12 8l-3.5 3.5",
  chevron: "M6 3.5 10.5 8 6 12.5",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2.5v2.5h-2.5",
  plus: "M8 3v10M3 8h10",
  sun: "M8 5.2a2.8 2.8 0 1 0 .01 0M8 1.5v1.2M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9M12.6 3.4l-.9.9M4.3 11.7l-.9.9",
  gear: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11M5 3v3M10.5 6.5v3M7 10v3",
  search: "M7 2.5a4.5 4.5 0 1 0 .01 0M10.3 10.3l3.2 3.2",
  copy: "M5.5 5.5h7.5V13H5.5ZM3 10.5V3h7.5",
  trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5 5 13.5h6l.5-9",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3Z",
  link: "M7 9.5 9.5 7M6 7.5 4.2 9.3a2 2 0 0 0 2.8 2.8L8.8 10.3M10 8.5l1.8-1.8A2 2 0 0 0 9 3.9L7.2 5.7",
  save: "M3.5 2.5h9v11L8 10.3l-4.5 3.2Z",
  live: "M8 6.2a1.8 1.8 0 1 0 .01 0M4.2 4.2a5.4 5.4 0 0 0 0 7.6M11.8 4.2a5.4 5.4 0 0 1 0 7.6",
};

export const icon = (name) =>
  s("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" }, s("path", { d: PATHS[name] }));
