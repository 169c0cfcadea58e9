// What the page knows. It loads everything once, keeps it current from the live stream, and tells views what changed.

import { Api, type Connection, Problem } from "./api";
import type {
  Decision,
  Health,
  Link,
  Mechanism,
  Metrics,
  Move,
  NodeInfo,
  Placement,
  Point,
  Query,
  Reconfiguration,
  Sample,
  Sink,
  Stream,
  Topology,
  TopologyChange,
} from "./model";

export type Topic =
  | "connection"
  | "health"
  | "topology"
  | "positions"
  | "placements"
  | "queries"
  | "metrics"
  | "changes"
  | "decisions"
  | "selection"
  | "moves";

const KEPT_METRICS = 300;
const KEPT_CHANGES = 200;
const REFRESH_MS = 1500;

export function linkKey(a: string, b: string): string {
  return a < b ? `${a}\n${b}` : `${b}\n${a}`;
}

export interface Selection {
  query: string | null;
  node: string | null;
  link: Link | null;
}

export class Store {
  connection: Connection = "connecting";
  retryMs = 0;
  loaded = false;
  private early: [string, unknown][] = [];
  health: Health = { status: "starting", problems: [] };
  nodes = new Map<string, NodeInfo>();
  links = new Map<string, Link>();
  positions = new Map<string, Point>();
  placements: Placement[] = [];
  queries = new Map<string, Query>();
  metrics: Metrics[] = [];
  changes: Reconfiguration[] = [];
  decisions: Decision[] = [];
  mechanisms: Mechanism[] = [];
  streams: Stream[] = [];
  samples: Sample[] = [];
  sinks: Sink[] = [];
  lastMoves: Move[] = [];
  selection: Selection = { query: null, node: null, link: null };
  /** Links that went since the page was opened: those that were cut can be mended. */
  gone = new Map<string, Link>();

  private listeners = new Map<Topic, ((store: Store) => void)[]>();
  private due = new Set<Topic>();
  private stop: (() => void) | null = null;
  private refreshing = 0;
  private loading = false;

  constructor(readonly api: Api) {}

  on(topics: Topic | Topic[], listener: (store: Store) => void): void {
    for (const topic of [topics].flat()) {
      this.listeners.set(topic, [...(this.listeners.get(topic) ?? []), listener]);
    }
  }

  /** Views hear of it before the next frame, once, however often something changed. */
  tell(...topics: Topic[]): void {
    if (!this.due.size) setTimeout(() => this.flush(), 16);
    for (const topic of topics) this.due.add(topic);
  }

  private flush(): void {
    const heard = new Set<(store: Store) => void>();
    for (const topic of this.due) for (const listener of this.listeners.get(topic) ?? []) heard.add(listener);
    this.due.clear();
    for (const listener of heard) listener(this);
  }

  /** The newest time that the coordinator told: differences to it do not depend on this machine's clock. */
  get nowMs(): number {
    return this.metrics.at(-1)?.at_ms ?? this.changes[0]?.began_ms ?? Date.now();
  }

  start(): void {
    this.stop?.();
    this.stop = this.api.follow({
      event: (kind, data) => this.take(kind, data),
      connection: (state, retryMs) => {
        this.connection = state;
        this.retryMs = retryMs ?? 0;
        if (state === "live") void this.load();
        this.tell("connection");
      },
    });
  }

  select(change: Partial<Selection>): void {
    this.selection = { ...this.selection, ...change };
    this.tell("selection");
  }

  private async load(): Promise<void> {
    if (this.loading) return;
    this.loading = true;
    this.early.length = 0;
    try {
      const { api } = this;
      this.health = await api.get<Health>("/health");
      this.tell("health");
      const [topology, positions, placements, queries, changes, decisions, mechanisms, streams, samples, sinks] =
        await Promise.all([
          api.get<Topology>("/topology"),
          api.get<Record<string, Point>>("/positions").catch(() => ({})),
          api.get<Placement[]>("/placements"),
          api.get<Query[]>("/queries"),
          api.get<Reconfiguration[]>(`/reconfigurations?limit=${KEPT_CHANGES}`),
          api.get<Decision[]>("/decisions"),
          api.get<Mechanism[]>("/mechanisms"),
          api.get<Stream[]>("/streams"),
          api.get<Sample[]>("/samples").catch(() => []),
          api.get<Sink[]>("/sinks").catch(() => []),
        ]);
      this.nodes = new Map(topology.nodes.map((n) => [n.name, n]));
      this.links = new Map(topology.links.map((l) => [linkKey(l.a, l.b), l]));
      this.positions = new Map(Object.entries(positions));
      this.placements = placements;
      this.queries = new Map(queries.map((q) => [q.id, q]));
      this.changes = [...changes].sort((x, y) => y.number - x.number);
      this.decisions = [...decisions].sort((x, y) => y.at_ms - x.at_ms);
      Object.assign(this, { mechanisms, streams, samples, sinks, loaded: true });
      this.tell("health", "topology", "positions", "placements", "queries", "changes", "decisions", "connection");
      this.loading = false;
      for (const [kind, data] of this.early.splice(0)) this.take(kind, data);
    } catch (error) {
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
        this.connection = "unauthorised";
        this.stop?.();
      } else {
        setTimeout(() => void this.load(), 1000);
      }
      this.tell("connection");
    } finally {
      this.loading = false;
    }
  }

  /** What happens while everything is loaded may be newer than what comes back: it is taken afterwards, in its order. */
  private take(kind: string, data: unknown): void {
    if (kind !== "health" && kind !== "reset" && (this.loading || !this.loaded)) {
      this.early.push([kind, data]);
      return;
    }
    switch (kind) {
      case "topology":
        this.changeTopology(data as TopologyChange);
        break;
      case "positions":
        for (const [name, point] of Object.entries(data as Record<string, Point>)) this.positions.set(name, point);
        this.tell("positions");
        break;
      case "moves":
        this.move(data as Move[]);
        break;
      case "reconfiguration":
        this.change(data as Reconfiguration);
        break;
      case "query":
        this.query(data as Query);
        break;
      case "query_removed":
        this.queries.delete((data as { id: string }).id);
        if (this.selection.query === (data as { id: string }).id) this.select({ query: null });
        this.refresh();
        this.tell("queries");
        break;
      case "decision":
        this.decisions = [data as Decision, ...this.decisions].slice(0, KEPT_CHANGES);
        this.tell("decisions");
        break;
      case "metrics":
        this.measure(data as Metrics);
        break;
      case "reset":
        void this.load();
        break;
      case "health":
        this.health = data as Health;
        if (!this.loaded && (this.health.status === "ok" || this.health.status === "degraded")) void this.load();
        this.tell("health");
        break;
    }
  }

  private changeTopology(change: TopologyChange): void {
    for (const node of change.nodes_changed ?? []) this.nodes.set(node.name, node);
    for (const name of change.nodes_forgotten ?? []) {
      this.nodes.delete(name);
      if (this.selection.node === name) this.select({ node: null });
    }
    for (const name of change.nodes_removed ?? []) {
      const node = this.nodes.get(name);
      if (node) this.nodes.set(name, { ...node, alive: false, used: 0 });
    }
    for (const { a, b } of change.links_removed ?? []) {
      const link = this.links.get(linkKey(a, b));
      this.gone.delete(linkKey(a, b));
      if (link) this.gone.set(linkKey(a, b), link);
      this.links.delete(linkKey(a, b));
    }
    for (const link of change.links_added ?? []) {
      this.links.set(linkKey(link.a, link.b), link);
      this.gone.delete(linkKey(link.a, link.b));
    }
    this.tell("topology");
  }

  private move(moves: Move[]): void {
    const to = new Map(moves.map((m) => [String(m.operator), m.to]));
    for (const placement of this.placements) {
      const node = to.get(String(placement.operator));
      if (node !== undefined) placement.node = node;
    }
    this.lastMoves.push(...moves.filter((m) => m.from && m.to && m.from !== m.to));
    this.refresh();
    this.tell("moves", "placements");
  }

  private change(change: Reconfiguration): void {
    const at = this.changes.findIndex((c) => c.number <= change.number);
    if (at >= 0 && this.changes[at].number === change.number) this.changes[at] = change;
    else this.changes.splice(at < 0 ? this.changes.length : at, 0, change);
    this.changes.length = Math.min(this.changes.length, KEPT_CHANGES);
    this.tell("changes");
  }

  private query(query: Query): void {
    if (!this.queries.has(query.id)) this.refresh();
    this.queries.set(query.id, { ...this.queries.get(query.id), ...query });
    this.tell("queries");
  }

  private measure(metrics: Metrics): void {
    this.metrics.push(metrics);
    if (this.metrics.length > KEPT_METRICS) this.metrics.shift();
    for (const [id, now] of Object.entries(metrics.queries)) {
      const query = this.queries.get(id);
      if (query) Object.assign(query, { rate_tps: now.rate_tps, results: now.results, latency_ms: { ...query.latency_ms, ...now.latency_ms }, status: now.status ?? query.status, reason: now.reason });
    }
    this.tell("metrics");
  }

  /** Placements are fetched anew soon, but not more often than views need. */
  refresh(): void {
    if (this.refreshing) return;
    this.refreshing = window.setTimeout(async () => {
      this.refreshing = 0;
      try {
        this.placements = await this.api.get<Placement[]>("/placements");
        this.tell("placements");
      } catch {
        // the stream will say that the connection is lost
      }
    }, REFRESH_MS);
  }
}
