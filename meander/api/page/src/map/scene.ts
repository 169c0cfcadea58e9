// What is on the map: nodes that glide to where they belong, links with their flow, operators on nodes, and operators on
// their way. It knows nothing of screens.

import type { NodeColour } from "../colours";
import { nodeColours, queryColour } from "../colours";
import type { Link, Point } from "../model";
import { type Store, linkKey } from "../store";
import { layout, Projection } from "./layout";

const GLIDE_MS = 900;
const FLIGHT_MS = 1100;
const MOST_FLIGHTS = 80;
export const SHOWN_OPERATORS = 6;

export interface Mark {
  name: string;
  kind: string;
  alive: boolean;
  moving: boolean;
  load: number;
  x: number;
  y: number;
  from: Point;
  to: Point;
  since: number;
  takes: number;
  /** Colours of the queries whose operators are here, sources left out; at most a few. */
  operators: string[];
  count: number;
}

export interface Line {
  a: Mark;
  b: Mark;
  link: Link;
  tps: number;
}

export interface Flight {
  from: Mark;
  to: Mark;
  colour: string;
  starts: number;
  ends: number;
  bend: number;
}

export class Scene {
  marks = new Map<string, Mark>();
  lines: Line[] = [];
  flights: Flight[] = [];
  rings = new Map<string, NodeColour>();
  /** Grows when something changed that does not move by itself. */
  version = 0;
  calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

  private lastPositions = 0;
  private flat = new Projection([]);
  private byKey = new Map<string, Line>();

  constructor(private store: Store) {
    store.on("topology", () => this.rebuild());
    store.on("positions", () => this.reposition());
    store.on(["placements", "queries", "selection"], () => this.place());
    store.on("moves", () => this.launch());
    store.on("metrics", () => this.measure());
  }

  rebuild(): void {
    const { store } = this;
    this.flat = new Projection(store.nodes.values());
    const places = layout(store.nodes.values(), store.links.values(), store.positions, this.flat);
    const now = performance.now();
    const marks = new Map<string, Mark>();
    for (const node of store.nodes.values()) {
      const to = places.get(node.name) ?? { x: 0, y: 0 };
      const old = this.marks.get(node.name);
      const mark: Mark = old ?? {
        name: node.name, kind: node.kind, alive: true, moving: false, load: 0, ...to, from: to, to, since: 0, takes: 1,
        operators: [], count: 0,
      };
      mark.kind = node.kind;
      mark.alive = node.alive;
      mark.moving = store.positions.has(node.name);
      mark.load = node.capacity ? Math.min(1, node.used / node.capacity) : 0;
      if (old && !mark.moving && (to.x !== mark.to.x || to.y !== mark.to.y)) this.glide(mark, to, now, GLIDE_MS);
      marks.set(node.name, mark);
    }
    this.marks = marks;
    this.lines = [];
    this.byKey.clear();
    for (const [key, link] of store.links) {
      const a = marks.get(link.a);
      const b = marks.get(link.b);
      if (!a || !b) continue;
      const line = { a, b, link, tps: 0 };
      this.lines.push(line);
      this.byKey.set(key, line);
    }
    this.measure();
    this.place();
  }

  private reposition(): void {
    const now = performance.now();
    const takes = Math.min(2000, Math.max(120, now - this.lastPositions)) * 1.15;
    this.lastPositions = now;
    for (const [name, point] of this.store.positions) {
      const mark = this.marks.get(name);
      if (!mark) continue;
      if (!mark.moving) this.version++;
      mark.moving = true;
      this.glide(mark, this.flat.to(point), now, takes);
    }
  }

  private glide(mark: Mark, to: Point, now: number, takes: number): void {
    this.advanceMark(mark, now);
    mark.from = { x: mark.x, y: mark.y };
    mark.to = to;
    mark.since = now;
    mark.takes = this.calm ? 1 : takes;
  }

  private advanceMark(mark: Mark, now: number): boolean {
    const share = Math.min(1, (now - mark.since) / mark.takes);
    mark.x = mark.from.x + (mark.to.x - mark.from.x) * share;
    mark.y = mark.from.y + (mark.to.y - mark.from.y) * share;
    return share < 1;
  }

  /** Moves everything to its place at this time; says whether anything that is drawn as still has moved. */
  advance(now: number): boolean {
    let stirred = false;
    for (const mark of this.marks.values()) {
      if (mark.x === mark.to.x && mark.y === mark.to.y) continue;
      this.advanceMark(mark, now);
      if (!mark.moving) stirred = true;
    }
    this.flights = this.flights.filter((f) => f.ends > now);
    return stirred;
  }

  private measure(): void {
    for (const line of this.lines) line.tps = 0;
    for (const { a, b, tps } of this.store.metrics.at(-1)?.links ?? []) {
      const line = this.byKey.get(linkKey(a, b));
      if (line) line.tps += tps;
    }
    this.version++;
  }

  private place(): void {
    const chosen = this.store.selection.query;
    for (const mark of this.marks.values()) {
      mark.operators = [];
      mark.count = 0;
    }
    const hosts: string[] = [];
    for (const placement of this.store.placements) {
      const mark = placement.node ? this.marks.get(placement.node) : undefined;
      if (!mark) continue;
      const mine = !chosen || placement.queries.includes(chosen);
      if (!mine || placement.kind === "source" || placement.label.startsWith("source")) continue;
      if (chosen) hosts.push(mark.name);
      mark.count++;
      if (mark.operators.length < SHOWN_OPERATORS) mark.operators.push(queryColour(chosen ?? placement.queries[0] ?? ""));
    }
    for (const mark of this.marks.values()) mark.operators.sort();
    this.rings = nodeColours(hosts);
    this.version++;
  }

  private launch(): void {
    const now = performance.now();
    const moves = this.store.lastMoves.splice(0);
    if (this.calm || document.hidden) return;
    for (const move of moves.slice(0, MOST_FLIGHTS)) {
      const from = this.marks.get(move.from!);
      const to = this.marks.get(move.to!);
      if (!from || !to || this.flights.length > 3 * MOST_FLIGHTS) continue;
      const starts = now + (this.flights.length % 12) * 45;
      const colour = queryColour(move.query ?? this.store.placements.find((p) => p.operator === move.operator)?.queries[0] ?? "");
      this.flights.push({ from, to, colour, starts, ends: starts + FLIGHT_MS, bend: this.flights.length % 2 ? 0.18 : -0.18 });
    }
  }
}
