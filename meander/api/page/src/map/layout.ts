// Where nodes are drawn. Given positions win; a node without one hangs beside its neighbours; a topology without any
// positions becomes rings around its centre: the cloud inside, then each node at its distance, children near parents.

import type { Link, NodeInfo, Point } from "../model";

const GOLDEN = 2.399963;
const RADIAN = Math.PI / 180;

/** Positions are degrees; away from the equator a degree of longitude is shorter than one of latitude. */
export class Projection {
  private shrink = 1;

  constructor(nodes: Iterable<NodeInfo>) {
    let [sum, count] = [0, 0];
    for (const { y } of nodes) if (isNumber(y)) [sum, count] = [sum + y, count + 1];
    if (count) this.shrink = Math.max(0.1, Math.cos((sum / count) * RADIAN));
  }

  to({ x, y }: Point): Point {
    return { x: x * this.shrink, y };
  }
}

export function layout(nodes: Iterable<NodeInfo>, links: Iterable<Link>, known: Map<string, Point>, flat: Projection): Map<string, Point> {
  const all = [...nodes];
  const places = new Map<string, Point>();
  for (const node of all) {
    const point = known.get(node.name) ?? (isNumber(node.x) && isNumber(node.y) ? { x: node.x, y: node.y } : null);
    if (point) places.set(node.name, flat.to(point));
  }
  const near = neighbours(all, links);
  if (!places.size) return rings(all, near);
  beside(all, near, places);
  return places;
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function neighbours(nodes: NodeInfo[], links: Iterable<Link>): Map<string, string[]> {
  const near = new Map<string, string[]>(nodes.map((n) => [n.name, []]));
  for (const { a, b } of links) {
    near.get(a)?.push(b);
    near.get(b)?.push(a);
  }
  return near;
}

/** Nodes without a position, next to one that has one: a little outwards, each in a direction of its own. */
function beside(nodes: NodeInfo[], near: Map<string, string[]>, places: Map<string, Point>): void {
  const step = extent(places.values()) / 30;
  const crowd = new Map<string, number>();
  let waiting = nodes.filter((n) => !places.has(n.name));
  while (waiting.length) {
    const rest: NodeInfo[] = [];
    const placed = new Map<string, Point>();
    for (const node of waiting) {
      const host = near.get(node.name)?.find((n) => places.has(n));
      if (!host) {
        rest.push(node);
        continue;
      }
      const at = places.get(host)!;
      const turn = crowd.get(host) ?? 0;
      crowd.set(host, turn + 1);
      const reach = step * (1 + Math.floor(turn / 8) * 0.6);
      placed.set(node.name, { x: at.x + reach * Math.cos(turn * GOLDEN), y: at.y + reach * Math.sin(turn * GOLDEN) });
    }
    for (const [name, point] of placed) places.set(name, point);
    if (rest.length === waiting.length) {
      const box = bounds(places.values());
      rest.forEach((n, i) => places.set(n.name, { x: box.left + i * step, y: box.bottom - 2 * step }));
      return;
    }
    waiting = rest;
  }
}

function rings(nodes: NodeInfo[], near: Map<string, string[]>): Map<string, Point> {
  const places = new Map<string, Point>();
  const centre =
    nodes.find((n) => n.kind === "cloud") ??
    nodes.reduce<NodeInfo | undefined>((best, n) => (!best || near.get(n.name)!.length > near.get(best.name)!.length ? n : best), undefined);
  if (!centre) return places;
  const children = new Map<string, string[]>();
  const seen = new Set([centre.name]);
  const order = [centre.name];
  for (let i = 0; i < order.length; i++) {
    const mine = (near.get(order[i]) ?? []).filter((n) => !seen.has(n) && seen.add(n));
    children.set(order[i], mine);
    order.push(...mine);
  }
  const apart = nodes.filter((n) => !seen.has(n.name)).map((n) => n.name);
  children.get(centre.name)!.push(...apart);
  order.push(...apart);
  const width = new Map<string, number>();
  for (const name of [...order].reverse()) {
    width.set(name, Math.max(1, (children.get(name) ?? []).reduce((sum, c) => sum + width.get(c)!, 0)));
  }
  const put = (name: string, from: number, to: number, depth: number): void => {
    const angle = (from + to) / 2;
    places.set(name, { x: depth * Math.cos(angle), y: depth * Math.sin(angle) });
    let start = from;
    for (const child of children.get(name) ?? []) {
      const end = start + ((to - from) * width.get(child)!) / width.get(name)!;
      put(child, start, end, depth + 1);
      start = end;
    }
  };
  put(centre.name, 0, 2 * Math.PI, 0);
  return places;
}

export interface Box {
  left: number;
  right: number;
  bottom: number;
  top: number;
}

export function bounds(points: Iterable<Point>): Box {
  const box = { left: Infinity, right: -Infinity, bottom: Infinity, top: -Infinity };
  for (const { x, y } of points) {
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x);
    box.bottom = Math.min(box.bottom, y);
    box.top = Math.max(box.top, y);
  }
  return Number.isFinite(box.left) ? box : { left: -1, right: 1, bottom: -1, top: 1 };
}

function extent(points: Iterable<Point>): number {
  const box = bounds(points);
  return Math.max(box.right - box.left, box.top - box.bottom) || 1;
}
