// What a person can do to the infrastructure from the page. Each is an event as in an event file, sent at once.

import type { Link, NodeInfo, Placement } from "./model";
import { attempt, notice } from "./notices";
import type { Store } from "./store";

interface Outcome {
  moves: { operator: unknown; from: string | null; to: string | null }[];
  fragments: number;
  rerouted: number;
  unplaced: Record<string, string>;
}

export type ChangeEvent = Record<string, unknown>;

export function removal(node: string): ChangeEvent[] {
  return [{ event: "node_removed", node }];
}

export function cut(link: Link): ChangeEvent[] {
  return [{ event: "link_removed", source: link.a, target: link.b, ...(link.directed ? { directed: true } : {}) }];
}

function added(link: Link): ChangeEvent {
  const event: ChangeEvent = { event: "link_added", source: link.a, target: link.b };
  if (typeof link.latency_ms === "number") event.latency_ms = link.latency_ms;
  if (typeof link.bandwidth_mbps === "number") event.bandwidth_mbps = link.bandwidth_mbps;
  if (link.directed) event.directed = true;
  return event;
}

/** Links that were cut between nodes that are there and stay in place. */
export function cutLinks(store: Store, name: string): Link[] {
  const stays = (end: string): boolean => {
    const node = store.nodes.get(end);
    return node !== undefined && node.alive && !node.mobile;
  };
  return [...store.gone.values()].filter((l) => (l.a === name || l.b === name) && stays(l.a) && stays(l.b));
}

export async function preview(store: Store, events: ChangeEvent[]): Promise<string> {
  const outcome = await store.api.post<Outcome>("/events?dry_run=true", { events: stamped(events) });
  return sentence(outcome, "would");
}

function sentence(outcome: Outcome, verb: "would" | "did"): string {
  const will = verb === "would";
  const parts: string[] = [];
  const moves = outcome.moves?.length ?? 0;
  if (moves) parts.push(`${moves} ${moves === 1 ? "operator" : "operators"} ${will ? "would move" : "on the move"}`);
  if (outcome.rerouted) parts.push(`${outcome.rerouted} ${outcome.rerouted === 1 ? "channel" : "channels"} ${will ? "would take" : "take"} another way`);
  const lost = Object.keys(outcome.unplaced ?? {}).length;
  if (lost) parts.push(`${lost} ${lost === 1 ? "operator has" : "operators have"} no place: ${Object.values(outcome.unplaced)[0]}`);
  return parts.length ? parts.join(", ") : will ? "nothing would have to move" : "nothing has to move";
}

/** Events that happen now: a time of 0 stands for "when it arrives". */
function stamped(events: ChangeEvent[]): ChangeEvent[] {
  return events.map((e) => ({ at_ms: 0, ...e }));
}

async function send(store: Store, events: ChangeEvent[], told: string, undo?: () => void): Promise<void> {
  await attempt(async () => {
    const outcome = await store.api.post<Outcome>("/events", { events: stamped(events) });
    notice(`${told}: ${sentence(outcome, "did")}`, "info", undo && { label: "Undo", run: undo });
  });
}

export function kill(store: Store, node: NodeInfo): Promise<void> {
  return send(store, removal(node.name), `${node.name} is down`, () => void restore(store, node));
}

/** The coordinator keeps the records of removed nodes, for any cause of the removal. */
export async function restore(store: Store, node: NodeInfo): Promise<void> {
  await attempt(async () => {
    const outcome = await store.api.post<Outcome>("/nodes/restore", { nodes: [node.name] });
    notice(`${node.name} is back: ${sentence(outcome, "did")}`);
  });
}

export async function forget(store: Store, node: NodeInfo): Promise<void> {
  await attempt(async () => {
    await store.api.post("/nodes/forget", { nodes: [node.name] });
    notice(`${node.name} is forgotten`);
  });
}

export function cutLink(store: Store, link: Link): Promise<void> {
  return send(store, cut(link), `Link ${link.a} – ${link.b} is cut`, () => void mendLink(store, link));
}

export function mendLink(store: Store, link: Link): Promise<void> {
  return send(store, [added(link)], `Link ${link.a} – ${link.b} is back`);
}

/** Puts an operator on a node, where it stays; fails in words. */
export async function sendMove(store: Store, { operator, label }: Placement, node: string): Promise<void> {
  const outcome = await store.api.post<Outcome>("/moves", { operator, node });
  store.refresh();
  notice(`${label} goes to ${node}: ${sentence(outcome, "did")}`, "info");
}

/** Lets the mechanism place an operator again that was moved by hand. */
export function release(store: Store, { operator, label }: Placement): Promise<boolean> {
  return attempt(async () => {
    const outcome = await store.api.remove<Outcome>(`/moves/${operator}`);
    store.refresh();
    notice(`${label} is released: ${sentence(outcome, "did")}`);
  });
}
