// The card of what is selected on the map: a node with its operators and links, or a link. From here nodes are killed
// and restored, links cut, and operators moved by hand.

import { cut, cutLink, cutLinks, forget, kill, mendLink, preview, release, removal, restore } from "./actions";
import { queryColour } from "./colours";
import { moveOperator } from "./dialogs/move";
import { fill, h, icon, say } from "./dom";
import { bytes, count, plural } from "./format";
import type { ExpectedMove, Link, NodeInfo, Placement } from "./model";
import { words } from "./notices";
import type { Store } from "./store";

const SHOWN_OPERATORS = 8;
const SHOWN_LINKS = 8;
const EXPECTED_MS = 2_000;

export class Inspector {
  readonly element = h("aside", { class: "card inspector", "aria-label": "Selection", hidden: true });
  private shown = "";
  private where = h("p", { class: "muted where" });
  private expected = h("p", { class: "muted expected", role: "status", hidden: true });
  private expectedOf = "";

  constructor(private store: Store) {
    setInterval(() => void this.expect(), EXPECTED_MS);
    store.on(["positions", "selection"], () => this.locate());
    store.on(["selection", "topology", "placements"], () => this.update());
  }

  private update(): void {
    const { node, link } = this.store.selection;
    const info = node ? this.store.nodes.get(node) : undefined;
    this.element.hidden = !info && !link;
    if (info?.mobile && info.name !== this.expectedOf) void this.expect();
    if (info) this.node(info);
    else if (link) this.link(link);
    else this.shown = "";
  }

  private locate(): void {
    const point = this.store.positions.get(this.store.selection.node ?? "");
    say(this.where, point ? `now at ${point.x.toFixed(4)}, ${point.y.toFixed(4)}` : "");
  }

  /** Where a mobile node that is selected goes next, and what is prepared for that. */
  private async expect(): Promise<void> {
    const name = this.store.selection.node ?? "";
    const isMobile = this.store.nodes.get(name)?.mobile ?? false;
    if (name !== this.expectedOf || !isMobile) this.expected.hidden = true;
    this.expectedOf = name;
    if (!isMobile) return;
    try {
      const found = await this.store.api.get<{ nodes: ExpectedMove[] }>("/predictions");
      const mine = found.nodes.find((n) => n.node === name);
      if (this.store.selection.node !== name) return;
      this.expected.hidden = !mine?.next;
      if (mine) say(this.expected, expectation(mine));
    } catch {
      this.expected.hidden = true; // the header says that there is no answer
    }
  }

  /** Rebuilt only when what it says has changed, so that focus stays where it is. */
  private show(key: string, build: () => Node[]): void {
    if (key === this.shown) return;
    const focused = (document.activeElement as HTMLElement | null)?.dataset?.name;
    this.shown = key;
    fill(this.element, ...build());
    if (focused) this.element.querySelector<HTMLElement>(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  }

  private head(title: string, about: string): HTMLElement {
    const close = h(
      "button",
      { type: "button", class: "quiet square", "aria-label": "Close", onclick: () => this.store.select({ node: null, link: null }) },
      icon("close"),
    );
    return h("header", {}, h("div", {}, h("h2", {}, title), h("p", { class: "muted" }, about)), close);
  }

  private node(node: NodeInfo): void {
    const here = this.store.placements.filter((p) => p.node === node.name);
    const links = [...this.store.links.values()].filter((l) => l.a === node.name || l.b === node.name);
    const back = node.alive ? "" : comesBack(this.store, node);
    const key = JSON.stringify([node.name, node.alive, node.used, here.map((p) => [p.operator, p.pinned]), links, back, cutLinks(this.store, node.name).length]);
    this.show(key, () => [
      this.head(node.name, node.alive ? kindOf(node) : `${node.kind}, down`),
      this.where,
      this.expected,
      node.alive ? room(node) : h("p", { class: "status bad" }, back),
      operators(this.store, here),
      this.links(node.name, links),
      node.alive
        ? this.buttons(`Kill ${node.name}`, () => void kill(this.store, node), () => preview(this.store, removal(node.name)))
        : h(
            "footer",
            {},
            h("button", { type: "button", class: "primary", "data-name": "restore", onclick: () => void restore(this.store, node) }, `Restore ${node.name}`),
            h("button", { type: "button", "data-name": "forget", onclick: () => void forget(this.store, node) }, "Forget"),
          ),
    ]);
  }

  private links(name: string, links: Link[]): HTMLElement {
    const end = (link: Link): string => (link.a === name ? link.b : link.a);
    const sorted = [...links].sort((x, y) => end(x).localeCompare(end(y), undefined, { numeric: true }));
    const rows = sorted.slice(0, SHOWN_LINKS).map((link) => {
      const other = end(link);
      return h(
        "li",
        {},
        h("button", { type: "button", class: "link grow", onclick: () => this.store.select({ node: other, link: null }) }, other),
        h("span", { class: "muted" }, about(link)),
        h("button", { type: "button", class: "small", "data-name": `cut ${other}`, "aria-label": `Cut the link to ${other}`, onclick: () => void cutLink(this.store, link) }, "Cut"),
      );
    });
    for (const link of cutLinks(this.store, name).slice(-3)) {
      const other = end(link);
      rows.push(
        h("li", {}, h("span", { class: "grow muted struck" }, other), h("button", { type: "button", class: "small", "data-name": `mend ${other}`, "aria-label": `Restore the link to ${other}`, onclick: () => void mendLink(this.store, link) }, "Restore")),
      );
    }
    const more = links.length - SHOWN_LINKS;
    return h("section", {}, h("h3", {}, "Links"), rows.length ? h("ul", { class: "rows" }, ...rows, more > 0 && h("li", { class: "muted" }, `and ${more} more`)) : h("p", { class: "muted" }, "None."));
  }

  private link(link: Link): void {
    const live = [...this.store.links.values()].some((l) => l.a === link.a && l.b === link.b);
    this.show(JSON.stringify([link, live]), () => [
      this.head(`${link.a} – ${link.b}`, live ? `link, ${about(link)}` : "link, cut"),
      live
        ? this.buttons("Cut this link", () => void cutLink(this.store, link), () => preview(this.store, cut(link)))
        : h("footer", {}, h("button", { type: "button", class: "primary", "data-name": "mend", onclick: () => void mendLink(this.store, link) }, "Restore this link")),
    ]);
  }

  private buttons(label: string, act: () => void, ask: () => Promise<string>): HTMLElement {
    const answer = h("p", { class: "muted", role: "status" });
    const look = async (): Promise<void> => {
      answer.textContent = "asking…";
      try {
        answer.textContent = `If so, ${await ask()}.`;
      } catch (error) {
        answer.textContent = words(error);
      }
    };
    return h(
      "footer",
      {},
      h("button", { type: "button", class: "danger", "data-name": "act", onclick: act }, label),
      h("button", { type: "button", "data-name": "look", onclick: () => void look() }, "What if?"),
      answer,
    );
  }
}

/** As in: expected next: base-4 in 12 s, 0.92; prepared 2 operators, 1.2 MB. */
function expectation(move: ExpectedMove): string {
  const when = move.in_s === null ? "" : ` in ${count(Math.round(move.in_s))} s`;
  const likely = move.probability === null ? "" : `, ${move.probability.toFixed(2)}`;
  const ahead = move.prepared_for ? `; prepared ${plural(move.operators.length, "operator")}, ${bytes(move.bytes)}` : "";
  return `expected next: ${move.next}${when}${likely}${ahead}`;
}

/** What the coordinator remembers of a node that is down. */
function comesBack(store: Store, node: NodeInfo): string {
  const links = node.comes_back_with ?? [];
  if (!links.length) return "It had no links; it comes back without any.";
  const later = links.filter((l) => !store.nodes.get(l.a === node.name ? l.b : l.a)?.alive).length;
  return `Comes back with ${plural(links.length, "link")}${later ? `, ${later} of them when the other end is back too` : ""}.`;
}

function kindOf(node: NodeInfo): string {
  return node.mobile ? `${node.kind}, on the move` : node.kind;
}

function about(link: Link): string {
  const parts = [];
  if (typeof link.latency_ms === "number") parts.push(`${count(link.latency_ms)} ms`);
  if (typeof link.bandwidth_mbps === "number") parts.push(`${count(link.bandwidth_mbps)} Mbit/s`);
  return parts.join(", ");
}

function room(node: NodeInfo): HTMLElement {
  if (!node.capacity) return h("p", { class: "muted" }, `${plural(node.used, "slot")} in use, no limit`);
  const share = Math.min(1, node.used / node.capacity);
  return h(
    "div",
    { class: "room" },
    h("div", { class: "bar", role: "img", "aria-label": `${node.used} of ${node.capacity} slots in use` }, h("span", { vars: { "--share": `${100 * share}%` } })),
    h("span", { class: "muted" }, `${count(node.used)} of ${count(node.capacity)} slots`),
  );
}

function operators(store: Store, here: Placement[]): HTMLElement {
  const first = [...here].sort((a, b) => Number(b.pinned ?? false) - Number(a.pinned ?? false));
  const rows = first.slice(0, SHOWN_OPERATORS).map((p) =>
    h(
      "li",
      { title: p.why ?? "" },
      h("span", { class: "dot", vars: { "--colour": queryColour(p.queries[0] ?? "") } }),
      h("span", { class: "grow cut" }, p.label),
      p.queries.length > 1 && h("span", { class: "muted" }, `shared by ${p.queries.length}`),
      p.pinned && h("button", { type: "button", class: "small", "data-name": `release ${p.operator}`, "aria-label": `Release ${p.label}, which was put here by hand`, onclick: () => void release(store, p) }, "Release"),
      p.kind !== "source" && p.kind !== "sink" && h("button", { type: "button", class: "small", "data-name": `move ${p.operator}`, "aria-label": `Move ${p.label}`, onclick: () => moveOperator(store, p) }, "Move"),
    ),
  );
  const more = here.length - SHOWN_OPERATORS;
  return h("section", {}, h("h3", {}, "Operators"), rows.length ? h("ul", { class: "rows" }, ...rows, more > 0 && h("li", { class: "muted" }, `and ${more} more`)) : h("p", { class: "muted" }, "None."));
}
