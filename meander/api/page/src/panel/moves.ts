// Mobile nodes: where each goes next, how likely and when, what is prepared there, and what came of earlier guesses.

import { fill, h, say } from "../dom";
import { bytes, plural } from "../format";
import type { ExpectedMove, Predictions } from "../model";
import type { Store } from "../store";

const EVERY_MS = 1_000;

export class Moves {
  readonly element = h("div", { class: "moves" });
  private totals = h("p", { class: "muted" });
  private list = h("ol", { class: "rows tall" });

  /** `known` is told how many mobile nodes are expected somewhere. */
  constructor(
    private store: Store,
    private known: (count: number) => void,
  ) {
    this.element.append(this.totals, this.list);
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
      fill(this.list, ...sorted.map((move) => this.row(move, found.mode === "timetable")));
    } catch {
      // the header says that there is no answer
    }
  }

  private row(move: ExpectedMove, byTimetable: boolean): HTMLElement {
    const next = move.next ? `${move.at ?? ""} → ${move.next}` : (move.at ?? "");
    return h(
      "li",
      { "data-node": move.node },
      h("span", { class: "line" }, h("button", { type: "button", class: "link grow", onclick: () => this.store.select({ node: move.node, link: null }) }, move.node), h("span", { class: "muted" }, next)),
      h("p", { class: "muted" }, reason(move, byTimetable)),
    );
  }
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
