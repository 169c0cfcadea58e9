// The timeline of reconfigurations, newest first: how long each phase took, what moved, how much state travelled.

import { fill, h, say } from "../dom";
import { ago, bytes, ms, plural } from "../format";
import { PHASES, type Reconfiguration } from "../model";
import type { Store } from "../store";

const SHOWN = 60;
const SHOWN_MOVES = 12;
const WORDS: Record<string, string> = { under_way: "under way", committed: "in effect", aborted: "aborted" };

export class Changes {
  readonly element = h("div", { class: "changes" });
  private list = h("ol", { class: "rows tall" });
  private rows = new Map<number, { element: HTMLElement; update(change: Reconfiguration, longest: number): void }>();
  private empty = h("div", { class: "empty" }, h("h3", {}, "Nothing has changed yet"), h("p", {}, "When a node moves, fails or comes back, what had to be reconfigured shows here with its phases. Try it: select a node on the map."));
  private total = h("p", { class: "muted" });

  constructor(private store: Store) {
    const key = h("ul", { class: "phase-key" }, ...PHASES.map((p) => h("li", {}, h("span", { class: `phase-dot ${p}` }), p)));
    this.element.append(h("div", { class: "section-head" }, key, this.total), this.list, this.empty);
    store.on(["changes", "metrics", "connection"], () => this.update());
  }

  private update(): void {
    if (this.element.closest("[hidden]")) return;
    const shown = this.store.changes.slice(0, SHOWN);
    const longest = Math.max(1, ...shown.map(duration));
    const kept = new Set(shown.map((c) => c.number));
    for (const [number, row] of this.rows) {
      if (kept.has(number)) continue;
      row.element.remove();
      this.rows.delete(number);
    }
    shown.forEach((change, at) => {
      let row = this.rows.get(change.number);
      if (!row) {
        row = this.row();
        this.rows.set(change.number, row);
      }
      if (this.list.children[at] !== row.element) this.list.insertBefore(row.element, this.list.children[at] ?? null);
      row.update(change, longest);
    });
    this.empty.hidden = shown.length > 0 || !this.store.loaded;
    say(this.total, shown.length ? `longest ${ms(longest)}` : "");
  }

  private row(): { element: HTMLElement; update(change: Reconfiguration, longest: number): void } {
    const title = h("span", { class: "grow cut" });
    const when = h("span", { class: "muted" });
    const bar = h("div", { class: "phases", role: "img" });
    const about = h("p", { class: "muted" });
    const moves = h("ul", { class: "moves" });
    const element = h("li", {}, h("details", {}, h("summary", {}, h("span", { class: "line" }, title, when), bar, about), moves));
    let last = "";
    return {
      element,
      update: (change, longest) => {
        say(when, `${ms(duration(change))} · ${ago(change.began_ms, this.store.nowMs)}`);
        const key = JSON.stringify(change) + longest;
        if (key === last) return;
        last = key;
        element.className = change.status;
        say(title, `#${change.number} ${change.cause}`);
        title.title = change.cause;
        const phases = PHASES.map((p) => [p, change.phases_ms?.[p] ?? 0] as const);
        fill(bar, ...phases.map(([p, took]) => h("span", { class: p, title: `${p} ${ms(took)}`, vars: { "--share": `${(100 * took) / longest}%` } })));
        bar.setAttribute("aria-label", phases.map(([p, took]) => `${p} ${ms(took)}`).join(", "));
        say(about, [WORDS[change.status] ?? change.status, plural(change.fragments, "fragment"), change.moves?.length ? plural(change.moves.length, "move") : "", change.state_bytes ? `${bytes(change.state_bytes)} of state` : "", change.pause_ms ? `pause ${ms(change.pause_ms)}` : "", change.reason ?? ""].filter(Boolean).join(" · "));
        const listed = (change.moves ?? []).slice(0, SHOWN_MOVES);
        const more = (change.moves?.length ?? 0) - listed.length;
        fill(moves, ...listed.map((m) => h("li", {}, `operator ${m.operator}: ${m.from ?? "new"} → ${m.to ?? "ended"}`)), more > 0 && h("li", {}, `and ${more} more`), !listed.length && h("li", {}, "No operator moved."));
      },
    };
  }
}

function duration(change: Reconfiguration): number {
  return PHASES.reduce((sum, p) => sum + (change.phases_ms?.[p] ?? 0), 0);
}
