// Edit and resend: the payload of a message in an editor, checked as it is typed, sent as a new message with the same key.

import { isBusy, once, openBulk } from "./actions.js";
import { call } from "./api.js";
import { difference, indented } from "./payload.js";
import { openDialog, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { count, foreign, marked } from "./format.js";
import { actionButton, button, fault, problemBox } from "./parts.js";
import { address } from "./router.js";

/** Milliseconds without a key press after which the text is checked. */
const CHECK_AFTER = 400;

/** Unchanged lines that are shown around a change. */
const AROUND = 2;

let redraw = () => {};

export function setUpResend(changed) {
  redraw = changed;
}

export function openResend(message, payload) {
  const resend = new Resend(message, payload);
  resend.check();
  openDialog({ label: "Edit and resend", kind: "wide", attributes: { "data-edit": message.id }, render: (close) => resend.render(close) });
}

class Resend {
  problem = null;
  isChecked = false;
  sentID = null;
  #timer;
  #generation = 0;

  constructor(message, payload) {
    this.message = message;
    this.stored = indented(payload);
    this.text = this.stored;
    this.changes = [];
  }

  /** The request. The payload is put into it as it is written, so that numbers and escapes stay as they are. */
  #envelope() {
    const { upstream, kind, key } = this.message;
    this.before = `{"upstream":${JSON.stringify(upstream)},"kind":${JSON.stringify(kind)},${key === null ? "" : `"key":${JSON.stringify(key)},`}"payload":`;
    return `${this.before}${this.text}}`;
  }

  #typed(text) {
    this.text = text;
    this.isChecked = false;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.check(), CHECK_AFTER);
    redraw();
  }

  async check() {
    const generation = ++this.#generation;
    this.changes = difference(this.stored.split("\n"), this.text.split("\n"));
    let problem = null;
    try {
      await call("POST", "v1/messages", { query: { dryRun: "true" }, body: this.#envelope(), patience: 15 });
    } catch (caught) {
      problem = caught;
    }
    // A later text is being checked.
    if (generation !== this.#generation) return;
    this.problem = problem;
    this.isChecked = true;
    redraw();
  }

  send() {
    return once(["resend", this.message.id], async () => {
      try {
        this.sentID = (await call("POST", "v1/messages", { body: this.#envelope(), patience: 15 })).id;
        toast("Sent as a new message.", { link: [address(["messages", this.sentID]), "Open it"] });
      } catch (problem) {
        this.problem = problem;
      }
    });
  }

  render(close) {
    return this.sentID ? this.#sent(close) : this.#editor(close);
  }

  #editor(close) {
    const { problem, isChecked, message } = this;
    const isChanged = this.text !== this.stored;
    return [
      h("h2", null, "Edit and resend"),
      h("p", { class: "soft" }, "Sent as a new message to ", foreign(message.upstream), ", kind ", foreign(message.kind),
        message.key === null ? ", without a key" : [", with the same key ", foreign(message.key)], ". It takes its place at the end of its lane."),
      h("div", { class: "columns" },
        h("div", null,
          h("label", { class: "field" }, h("span", null, "Payload"),
            h("textarea", { value: this.text, rows: "16", spellcheck: "false", autocomplete: "off", autocapitalize: "off", autofocus: true,
              oninput: (event) => this.#typed(event.target.value) })),
          h("div", { role: "status", class: "check-result" }, !isChecked ? h("p", { class: "soft" }, "Checking…")
            : problem ? this.#faults(problem) : h("p", { class: "tone-good" }, "The gateway would accept it."))),
        h("div", null, h("h3", null, "Difference to the stored one"), isChanged ? this.#difference() : h("p", { class: "soft" }, "Nothing is changed."))),
      h("div", { class: "buttons" }, button("Not now", close, { kind: "quiet", "data-action": "dismiss" }),
        actionButton({ action: "confirm", label: "Send as a new message", iconName: "right", kind: "primary", scope: "write", isBusy: isBusy("resend", message.id),
          onclick: () => isChecked && !problem && this.send(), ...(isChecked && !problem ? {} : { "aria-disabled": "true" }) })),
    ];
  }

  #faults(problem) {
    if (problem.status !== 422 && problem.status !== 400) return problemBox(problem, () => this.check());
    const offset = problem.members.offset;
    // Bytes before the payload are those of the envelope, which is ASCII but for the key.
    const place = offset === undefined ? null : offset - new TextEncoder().encode(this.before).length;
    return h("div", { class: "problem" },
      h("p", null, problem.errors.length ? `The gateway would reject it: ${count(problem.errors.length, "fault")}.` : foreign(problem.message)),
      place !== null && place >= 0 && h("p", { class: "soft" }, `At byte ${place} of the payload, line ${this.#lineAt(place)}.`),
      h("ul", null, problem.errors.slice(0, 20).map(fault)));
  }

  #lineAt(byte) {
    return new TextDecoder().decode(new TextEncoder().encode(this.text).slice(0, byte)).split("\n").length;
  }

  #difference() {
    const near = this.changes.map(({ kind }, index) => kind !== "same" || this.changes.slice(Math.max(0, index - AROUND), index + AROUND + 1).some((line) => line.kind !== "same"));
    const signs = { same: " ", removed: "-", added: "+" };
    return h("div", { class: "code diff", tabindex: "0", role: "region", "aria-label": "Difference" }, h("pre", { class: "text" },
      this.changes.slice(0, 2000).map(({ kind, text }, index) => near[index]
        && h(kind === "removed" ? "del" : kind === "added" ? "ins" : "span", null, `${signs[kind]} `, marked(text)))));
  }

  #sent(close) {
    const { message, sentID } = this;
    const isSettled = message.state !== "queued";
    return [
      h("h2", { tabindex: "-1" }, "Sent as a new message"),
      h("p", null, "The new one is ", h("a", { class: "id", href: address(["messages", sentID]), onclick: close }, foreign(sentID)), ". The old one is still ",
        foreign(message.state), "; ", isSettled ? "remove it if it is not needed any more." : "cancel it if it must not be sent as well."),
      h("div", { class: "buttons" }, button("Keep the old one", close, { kind: "quiet", "data-action": "dismiss" }),
        isSettled
          ? actionButton({ action: "purge", label: "Remove the old one…", iconName: "trash", onclick: () => {
            close();
            openBulk("purge", { ids: [message] });
          } })
          : actionButton({ action: "cancel", label: "Cancel the old one…", iconName: "cross", onclick: () => {
            close();
            openBulk("cancel", { ids: [message] });
          } })),
    ];
  }
}
