// Moving an operator by hand: choose a node, ask what would happen, do it. It stays there until it is released.

import { type ChangeEvent, preview, sendMove } from "../actions";
import { h } from "../dom";
import type { Placement } from "../model";
import { words } from "../notices";
import type { Store } from "../store";
import { dialog } from "./dialog";

export function moveOperator(store: Store, operator: Placement): void {
  const names = [...store.nodes.values()].filter((n) => n.alive && n.name !== operator.node).map((n) => n.name);
  names.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const node = h("select", { id: "move-node" }, ...names.map((name) => h("option", { value: name }, name)));
  const answer = h("p", { class: "muted", role: "status" });
  const mistake = h("p", { class: "mistake", role: "alert", hidden: true });
  const look = h("button", { type: "button", "data-name": "look", onclick: () => void ask() }, "What if?");
  const move = h("button", { type: "submit", class: "primary", disabled: names.length === 0 }, "Move");
  const { close } = dialog(
    `Move ${operator.label}`,
    [
      h(
        "div",
        { class: "grow" },
        h("p", { class: "muted" }, `It runs on ${operator.node ?? "no node"} now. Moved by hand it stays where it is put, with its state, until it is released.`),
        h("div", { class: "field" }, h("label", { for: "move-node" }, "Node"), node),
        answer,
        mistake,
      ),
    ],
    [look, move],
    () => void submit(),
  );
  node.addEventListener("change", () => {
    answer.textContent = "";
    mistake.hidden = true;
  });
  node.focus();

  function event(): ChangeEvent {
    return { event: "placement_changed", operator: operator.operator, node: node.value };
  }

  async function ask(): Promise<void> {
    answer.textContent = "asking…";
    try {
      answer.textContent = `If so, ${await preview(store, [event()])}.`;
    } catch (error) {
      answer.textContent = words(error);
    }
  }

  async function submit(): Promise<void> {
    move.disabled = true;
    try {
      await sendMove(store, operator, node.value);
      close();
    } catch (error) {
      mistake.textContent = words(error);
      mistake.hidden = false;
    } finally {
      move.disabled = false;
    }
  }
}
