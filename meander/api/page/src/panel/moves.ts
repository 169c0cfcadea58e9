// Mobile nodes: where each goes next, how likely and when, what is prepared there, and what came of earlier guesses.

import { fill, h, say } from "../dom";
import { ago, bytes, plural } from "../format";
import type { ExpectedMove, MoveOutcome, Predictions } from "../model";
import type { Store } from "../store";

const EVERY_MS = 1_000;
const SHOWN = 8;

export class Moves {
  readonly element = h("div", { class: "moves" });
  private totals = h("p", { class: "muted" });
  private list = h("ol", { class: "rows tall" });
  private judged = h("ol", { class: "rows tall judged" });

  /** `known` is told how many mobile nodes are expected somewhere. */
  constructor(
    private store: Store,
    private known: (count: number) => void,
  ) {
    this.element.append(this.totals, h("h3", {}, "Last moves"), this.judged, h("h3", {}, "Expected"), this.list);
    setInterval(() => void this.look(), EVERY_MS);
    void this.look();
  }

  private async look(): Promise<void> {
    try {
      const found = await this.store.api.get<Predictions>("/predictions");
      this.known(found.nodes.length);
      const { hit, miss, expired } = found.outcomes;
      say(this.totals, `${hit} moves as expected, ${miss} elsewhere, ${expired} not in time; state sent ahead for them: ${bytes(found.used_bytes)}, in vain: ${bytes(found.wasted_bytes)}`);
      const sorted = [...found.nodes].sort((x, y) => (x.in_s ?? 1e9) - (y.in_s ?? 1e9));
      fill(this.judged, ...found.recent.slice(0, SHOWN).map((move) => this.came(move, found.mode === "timetable")));
      fill(this.list, ...sorted.map((move) => this.row(move, found.mode === "timetable")));
    } catch {
      // the header says that there is no answer
    }
  }

  private came(move: MoveOutcome, byTimetable: boolean): HTMLElement {
    const line = `${move.from} → ${move.to ?? "nowhere"}, ${ago(move.at_ms, this.store.nowMs)}`;
    return this.item(move.node, line, outcome(move, byTimetable));
  }

  private row(move: ExpectedMove, byTimetable: boolean): HTMLElement {
    const next = move.next ? `${move.at ?? ""} → ${move.next}` : (move.at ?? "");
    return this.item(move.node, next, reason(move, byTimetable));
  }

  private item(node: string, line: string, text: string): HTMLElement {
    return h(
      "li",
      { "data-node": node },
      h("span", { class: "line" }, h("button", { type: "button", class: "link grow", onclick: () => this.store.select({ node, link: null }) }, node), h("span", { class: "muted" }, line)),
      h("p", { class: "muted" }, text),
    );
  }
}

/** What came of an expected move, and what was prepared for it. */
function outcome(move: MoveOutcome, byTimetable: boolean): string {
  const why = byTimetable ? "by its timetable" : `with ${Math.round(100 * move.probability)} %`;
  const state = `${bytes(move.bytes)} of state of ${plural(move.operators.length, "operator")}`;
  if (move.outcome === "hit") return `as expected, ${why}` + (move.bytes ? `; ${state} was there before it` : "; nothing was sent ahead");
  const sent = move.bytes ? `; ${state} sent ahead in vain` : "";
  return move.to ? `expected at ${move.expected} ${why}${sent}` : `expected at ${move.expected} ${why}, but it did not move in time${sent}`;
}

/** Why something is prepared, or not. */
function reason(move: ExpectedMove, byTimetable: boolean): string {
  if (!move.next || move.probability === null) return "no move is known yet that it could repeat";
  const when = move.in_s === null ? "" : move.in_s <= 0 ? ", due now" : `, in ${Math.round(move.in_s)} s`;
  const likely = byTimetable ? `by its timetable${when}` : `${Math.round(100 * move.probability)} % of the moves from here went there${when}`;
  if (!move.prepared_for) return likely;
  const sent = move.bytes ? `, ${bytes(move.bytes)} of state sent ahead${move.ready ? "" : " so far"}` : "";
  return `${likely}; ${plural(move.operators.length, "operator")} prepared at ${move.prepared_for}${sent}`;
}
