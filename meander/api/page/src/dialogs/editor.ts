// A text field for queries that can mark the place of a mistake.

import { fill, h } from "../dom";

export class Editor {
  readonly element: HTMLElement;
  readonly area: HTMLTextAreaElement;
  private behind = h("pre", { "aria-hidden": "true" });
  private message = h("p", { class: "mistake", id: "query-mistake", role: "alert", hidden: true });

  constructor(label: string, text = "") {
    this.area = h("textarea", { spellcheck: "false", "aria-label": label, "aria-describedby": "query-mistake", rows: "11", autocapitalize: "off", value: text });
    this.element = h("div", {}, h("div", { class: "editor" }, this.behind, this.area), this.message);
    this.area.addEventListener("input", () => this.clear());
    this.area.addEventListener("scroll", () => {
      this.behind.scrollTop = this.area.scrollTop;
      this.behind.scrollLeft = this.area.scrollLeft;
    });
  }

  get text(): string {
    return this.area.value;
  }

  set text(value: string) {
    this.area.value = value;
    this.clear();
  }

  insert(word: string): void {
    this.area.setRangeText(word, this.area.selectionStart, this.area.selectionEnd, "end");
    this.area.focus();
    this.clear();
  }

  clear(): void {
    this.message.hidden = true;
    this.area.removeAttribute("aria-invalid");
    fill(this.behind);
  }

  /** Shows what is wrong, and marks the word at that place. */
  mistake(text: string, line: number | null, column: number | null): void {
    this.message.textContent = text;
    this.message.hidden = false;
    this.area.setAttribute("aria-invalid", "true");
    this.area.focus();
    if (!line) return;
    const lines = this.text.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, l) => sum + l.length + 1, 0) + (column ? column - 1 : 0);
    const rest = this.text.slice(start);
    const length = column ? (/^[\w`']+|^\S/.exec(rest)?.[0].length ?? 1) : (lines[line - 1]?.length ?? 0);
    fill(this.behind, this.text.slice(0, start), h("mark", {}, this.text.slice(start, start + length) || " "), this.text.slice(start + length) + "\n");
    this.area.setSelectionRange(start, start);
  }
}
