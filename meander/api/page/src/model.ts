// What the coordinator sends, in the words of its HTTP reference.

export interface Point {
  x: number;
  y: number;
}

export interface NodeInfo {
  name: string;
  kind: string;
  capacity: number | null;
  used: number;
  alive: boolean;
  x?: number | null;
  y?: number | null;
  slots?: number;
  capacity_tps?: number | null;
  memory_mb?: number | null;
  mobile?: boolean;
  /** Of a node that is down: the links that the coordinator remembers. */
  comes_back_with?: Link[];
}

/** Where a mobile node goes next, and what is prepared for that. */
export interface ExpectedMove {
  node: string;
  at?: string | null;
  ready?: boolean;
  next: string | null;
  probability: number | null;
  in_s: number | null;
  prepared_for: string | null;
  operators: number[];
  bytes: number;
}

/** A move that was expected, and what happened; `to` is null if it did not come in time. */
export interface MoveOutcome {
  node: string;
  at_ms: number;
  from: string;
  to: string | null;
  expected: string;
  probability: number;
  outcome: string;
  operators: number[];
  bytes: number;
}

/** All of them, and what came of those before. */
export interface Predictions {
  mode: string;
  nodes: ExpectedMove[];
  outcomes: { hit: number; miss: number; expired: number };
  used_bytes: number;
  wasted_bytes: number;
  recent: MoveOutcome[];
}

/** One replica of a site's store: in step, behind, incomplete, or serving in the site's place. */
export interface KeeperLag {
  keeper: string;
  state: string;
  behind_bytes: number;
  behind_ms: number;
}

export interface SiteInfo {
  site: string;
  state: string;
  nodes: string[];
  replicas?: { lags: KeeperLag[]; stands_in: string | null; problem: string | null } | null;
}

export interface Link {
  a: string;
  b: string;
  latency_ms?: number;
  bandwidth_mbps?: number | null;
  directed?: boolean;
}

export interface Topology {
  version: number;
  nodes: NodeInfo[];
  links: Link[];
}

export interface TopologyChange {
  version: number;
  nodes_changed?: NodeInfo[];
  nodes_removed?: string[];
  nodes_forgotten?: string[];
  links_added?: Link[];
  links_removed?: Link[];
}

export interface Demand {
  text: string;
  met: boolean | null;
  value?: number | null;
  unit?: string | null;
}

export interface Latency {
  p50?: number | null;
  p95?: number | null;
  p99?: number | null;
}

export interface Query {
  id: string;
  text: string;
  status: string;
  reason?: string | null;
  mechanism: string;
  chosen?: string;
  demands: Demand[];
  operators: number;
  fragments: number;
  results: number;
  rate_tps: number;
  latency_ms: Latency | null;
  dag?: Dag;
}

export interface DagOperator {
  id: string | number;
  kind: string;
  label: string;
  node: string | null;
  fragment?: string | number | null;
  slot?: string | number | null;
  shared?: boolean;
  why?: string | null;
}

export interface Dag {
  operators: DagOperator[];
  edges: [string | number, string | number][];
}

export interface Placement {
  operator: string | number;
  label: string;
  kind?: string;
  queries: string[];
  node: string | null;
  pinned?: boolean;
  why?: string | null;
}

export interface Move {
  operator: string | number;
  query?: string;
  from: string | null;
  to: string | null;
  reconfiguration?: number | null;
}

export const PHASES = ["placement", "contexts", "markers", "state"] as const;
export type Phase = (typeof PHASES)[number];

export interface Reconfiguration {
  number: number;
  began_ms: number;
  ended_ms: number | null;
  cause: string;
  phases_ms: Partial<Record<Phase, number>>;
  fragments: number;
  moves: Move[];
  state_bytes: number;
  pause_ms: number | null;
  status: string;
  reason?: string | null;
}

export interface Decision {
  at_ms: number;
  query: string;
  action: string;
  from?: string | null;
  to?: string | null;
  reason: string;
  predicted?: Transition;
  took?: Transition & { predicted?: Transition };
}

/** What a transition is predicted to take, or took. */
export interface Transition {
  protocol: string;
  seconds: number;
  bytes: number;
  overlap_s: number;
  operators?: TransitionMove[];
}

export interface TransitionMove {
  operator: number;
  kind: string;
  way: string;
  why: string;
}

export interface Metrics {
  at_ms: number;
  queries: Record<string, { rate_tps: number; latency_ms: Latency | null; results: number; queue?: number; status?: string; reason?: string | null }>;
  host: {
    tuples_in_tps: number;
    tuples_out_tps: number;
    pending: number;
    state_bytes: number;
    steps_per_s: number;
    slots: { name: string; busy: number }[];
  };
  links?: { a: string; b: string; tps: number }[];
}

export interface Health {
  status: string;
  problems: string[];
  version?: string;
  uptime_s?: number;
}

export interface Mechanism {
  name: string;
  optimises: string[] | string;
  needs?: string[] | string;
  summary?: string;
  exchanged_bytes?: Record<string, number>;
}

export interface Stream {
  name: string;
  schema: Record<string, string> | { name: string; type: string }[] | string;
  nodes: string[];
}

export interface Sink {
  name: string;
  node: string;
}

export interface Sample {
  title: string;
  text: string;
}
