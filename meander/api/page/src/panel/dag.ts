// A query as a graph, sources on top. Operators that do the same in the same place of the plan are one box: a fleet of
// trains is one row of squares. Boxes and squares have the colours of the nodes they run on.

import { type NodeColour, nodeColours } from "../colours";
import { h, s } from "../dom";
import type { Dag, DagOperator } from "../model";

const WIDTH = 372;
const BOX = 38;
const STEP = 62;
const SQUARES = 26;

interface Group {
  key: string;
  kind: string;
  label: string;
  members: DagOperator[];
  level: number;
  x: number;
  width: number;
}

export function drawDag(dag: Dag, choose: (node: string) => void): HTMLElement {
  const groups = grouped(dag);
  const placed = dag.operators.flatMap((o) => (o.node ? [{ node: o.node, source: o.kind === "source" }] : []));
  const colours = nodeColours(placed.filter((p) => !p.source).map((p) => p.node), placed.map((p) => p.node));
  const levels = Math.max(0, ...groups.map((g) => g.level)) + 1;
  arrange(groups);
  const byMember = new Map(groups.flatMap((g) => g.members.map((m) => [String(m.id), g] as const)));
  const edges = new Map<string, [Group, Group]>();
  for (const [from, to] of dag.edges) {
    const [a, b] = [byMember.get(String(from)), byMember.get(String(to))];
    if (a && b && a !== b) edges.set(`${a.key}>${b.key}`, [a, b]);
  }
  const svg = s(
    "svg",
    { class: "dag", viewBox: `0 0 ${WIDTH} ${levels * STEP - STEP + BOX + 4}`, role: "img", "aria-label": described(groups) },
    ...[...edges.values()].map(([a, b]) => edge(a, b)),
    ...groups.map((g) => box(g, colours, choose)),
  );
  return h("div", { class: "dag-area" }, svg, key(colours, dag, choose));
}

/** Groups by what operators do and how far from the sources they are. */
function grouped(dag: Dag): Group[] {
  const level = new Map<string, number>(dag.operators.map((o) => [String(o.id), 0]));
  for (let round = 0; round < dag.operators.length; round++) {
    let changed = false;
    for (const [from, to] of dag.edges) {
      const below = (level.get(String(from)) ?? 0) + 1;
      if (below > (level.get(String(to)) ?? 0)) {
        level.set(String(to), below);
        changed = true;
      }
    }
    if (!changed) break;
  }
  const groups = new Map<string, Group>();
  for (const operator of dag.operators) {
    const at = level.get(String(operator.id)) ?? 0;
    const label = operator.label.replace(/ at \S+$/, "");
    const key = `${at} ${operator.kind} ${label}`;
    const group = groups.get(key) ?? { key, kind: operator.kind, label, members: [], level: at, x: 0, width: 0 };
    group.members.push(operator);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function arrange(groups: Group[]): void {
  const rows = new Map<number, Group[]>();
  for (const group of groups) rows.set(group.level, [...(rows.get(group.level) ?? []), group]);
  for (const row of rows.values()) {
    const width = Math.min(row.length === 1 ? 250 : 400, (WIDTH - 8 - 10 * (row.length - 1)) / row.length);
    const whole = width * row.length + 10 * (row.length - 1);
    row.forEach((group, i) => {
      group.width = width;
      group.x = (WIDTH - whole) / 2 + i * (width + 10);
    });
  }
}

function edge(a: Group, b: Group): SVGElement {
  const [x1, y1] = [a.x + a.width / 2, a.level * STEP + BOX + 2];
  const [x2, y2] = [b.x + b.width / 2, b.level * STEP + 2];
  const bend = (y2 - y1) / 2;
  return s("path", { class: "dag-edge", d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}` });
}

function box(group: Group, colours: Map<string, NodeColour>, choose: (node: string) => void): SVGElement {
  const y = group.level * STEP + 2;
  const many = group.members.length > 1;
  const only = many ? null : group.members[0];
  const colour = only?.node ? colours.get(only.node) : undefined;
  const letters = Math.floor((group.width - 18) / 5.7);
  const title = s("title", {}, `${group.kind} ${group.label}${only?.why ? `\n${only.why}` : ""}`);
  const shared = group.members.some((m) => m.shared) ? " · shared" : "";
  const rect = s("rect", { class: "dag-box", x: group.x, y, width: group.width, height: BOX, rx: 7, vars: colour ? { "--line": colour.line, "--tint": colour.tint } : {} });
  const text = s("text", { class: "dag-label", x: group.x + 9, y: y + 15 }, short(withKind(group), letters));
  const parts = many
    ? squares(group, y, colours, choose)
    : [s("text", { class: "dag-node", x: group.x + 9, y: y + 29 }, short((only?.node ?? "no place yet") + shared, letters + 2))];
  const about = only?.node ? { class: "dag-group", onclick: () => choose(only.node!) } : {};
  return s("g", about, title, rect, text, ...parts);
}

function squares(group: Group, y: number, colours: Map<string, NodeColour>, choose: (node: string) => void): SVGElement[] {
  const room = Math.max(3, Math.min(SQUARES, Math.floor((group.width - 50) / 9)));
  const shown = group.members.slice(0, room);
  const found = shown.map((member, i) => {
    const colour = member.node ? colours.get(member.node) : undefined;
    return s(
      "rect",
      { class: "dag-square", x: group.x + 9 + i * 9, y: y + 22, width: 7, height: 7, rx: 2, vars: { "--line": colour?.line ?? "transparent" }, onclick: () => member.node && choose(member.node) },
      s("title", {}, `${member.label} on ${member.node ?? "no node yet"}`),
    );
  });
  found.push(s("text", { class: "dag-node", x: group.x + 13 + shown.length * 9, y: y + 29 }, `×${group.members.length}`));
  return found;
}

function key(colours: Map<string, NodeColour>, dag: Dag, choose: (node: string) => void): HTMLElement {
  const load = new Map<string, number>();
  for (const o of dag.operators) if (o.node) load.set(o.node, (load.get(o.node) ?? 0) + 1);
  const order = [...colours.keys()].sort((a, b) => load.get(b)! - load.get(a)!);
  const shown = order.slice(0, 8).map((node) =>
    h("li", {}, h("button", { type: "button", class: "chip", onclick: () => choose(node), vars: { "--colour": colours.get(node)!.line } }, h("span", { class: "dot" }), `${node} ${load.get(node)}`)),
  );
  const more = order.length - shown.length;
  return h("ul", { class: "dag-key", "aria-label": "Nodes and how many operators of this query they run" }, ...shown, more > 0 && h("li", { class: "muted" }, `and ${more} more`));
}

function withKind(group: Group): string {
  return group.label.startsWith(group.kind) ? group.label : `${group.kind} ${group.label}`;
}

function short(text: string, letters: number): string {
  return text.length <= letters ? text : `${text.slice(0, Math.max(1, letters - 1))}…`;
}

function described(groups: Group[]): string {
  return groups.map((g) => `${g.members.length} times ${withKind(g)} on ${[...new Set(g.members.map((m) => m.node))].slice(0, 4).join(", ")}`).join("; ");
}
