// What the page is sent by GET /fleet and its events, for `tsc --checkJs`; it is not served.
// Seconds, seconds since 1970, counts, rates per second.

interface View {
  id: string; name: string; version: string; now: number; token: string;
  alone: boolean; alone_because?: string; left_out?: Record<string, number>;
  redis: { up: boolean; mode: string; staleness_seconds: number };
  rights: string[] | null; prefixes?: string[];
}
interface Instance {
  name: string; version: string; roles: string[]; host: string; pid: number; address: string; api: string;
  zone: string; group: string; started: number; draining: boolean; silent_for: number | null; connections: number | null;
  rate: number | null; inflight: number | null; p50: number | null; p99: number | null; error_rate: number | null;
  redis_up: boolean | null; redis_mode: string; staleness: number | null;
}
type Figured = "rate" | "error_rate" | "inflight" | "p50" | "p99";
interface Route {
  policy: string; pool: string; settings: Record<string, unknown>; sources: Record<string, string>;
  members: string[]; names: string[]; panic: boolean; faults: string[]; reasons: Record<string, number>;
  rate: number; inflight: number; p50: number | null; p99: number | null; error_rate: number;
}
interface Upstream {
  routes: string[]; weight: number; slots: number; capacity: number; zone: string; node: string; drain: boolean;
  joined: number; fading: number | null; health: string; ejected_by: string[]; why: string; since: number | null; inflight: number;
  held: Record<string, number>; rate: number; error_rate: number; latency: number | null; first_byte: number | null;
}
interface Queue {
  pool: string; route: string; priority: string; depth: number; oldest: number | null; eta: number | null;
}
interface Pool { mode: string; error: string; holders: number | null; queued: number | null }
interface Model {
  paused: boolean; buffered?: number; queued?: number; retrying?: number; processing?: number; ended?: number;
  callbacks?: number; dead: number; oldest_since: number | null; rate: number; at_risk?: string; failed_by: Record<string, number>; retried_by?: Record<string, number>;
}
interface Quota {
  tokens: number; tokens_limit: number; slots: number; slots_limit: number; share?: number; waiting: number;
  paused?: boolean; next?: { key: string; tokens: number; due: number }[];
}
interface Ring { shares: [string, number][] }
interface Culprit { upstream: string; why: string; since: number; failed: number }
interface Alert { level: string; text: string; since: number; do: string; failed: number; culprits: Culprit[]; route?: string; upstream?: string; instance?: string }
/** How bad it is with an upstream, 0 for not at all. */
interface Trouble { grave: number; why: string; since: number | null }
interface Change {
  time: number; instance: string; name: string; what: string; subject: string; detail: string; by: string;
}
interface Fleet {
  view: Map<string, View>; instances: Map<string, Instance>; routes: Map<string, Route>;
  upstreams: Map<string, Upstream>; queues: Map<string, Queue>; pools: Map<string, Pool>;
  jobs: Map<string, Model>; quota: Map<string, Quota>; rings: Map<string, Ring>;
  alerts: Map<string, Alert>; changes: Map<string, Change>;
}
/** Of a route: `room` is that of the upstreams that are `used`, which is how many those are. */
interface Load { room: number; inflight: number; used: number; queues: Queue[] }
type Section = keyof Fleet;
type FleetChange = { [S in Section]?: Record<string, (Fleet[S] extends Map<string, infer T> ? T : never) | null> };

interface History {
  step: number;
  series: Record<string, {
    name: string; until: number; requests: (number | null)[]; inflight: (number | null)[];
    p50: (number | null)[]; p99: (number | null)[]; errors: (number | null)[];
  }>;
}
/** Of a route (then with `waiting`, `p50` and `p99`) or of an upstream (`latency`): the last figure is that of `until`. */
interface Hour {
  name: string; step: number; until: number; instances: string[]; missing: string[];
  requests: Figures; errors: Figures; inflight: Figures; first_byte: Figures; waiting?: Figures; p50?: Figures; p99?: Figures; latency?: Figures;
}
type Now = Record<string, number | null>; // figures of a moment, by name
interface Job {
  job_id: string; model: string; status: string; attempts: number; failures: number; submitted_at: number;
  completed_at?: number; upstream?: string; error?: string;
}

type Child = VNode | string | number | null | undefined | false | Child[];
interface VNode {
  tag: string; props: Record<string, any>; children: Child[] | (() => Child[]); key: string; node?: Node;
}

/** `state`: connecting, live, lost (tries again at `retryAt`, in milliseconds), locked (needs a token), refused,
 * resting (the page is hidden). `isShut`: one of locked and refused, where nothing may be shown. */
interface Link { state: string; why: string; since: number; retryAt: number; isShut: boolean }
interface Toast { text: string; undo: (() => Promise<unknown>) | null; isError: boolean; id: number }
interface Field { name: string; label: string; value?: string; hint?: string; type?: string; options?: string[] } // of a form
interface Column<T> {
  name: string; cell: (row: T) => Child; right?: boolean;
  by?: (row: T) => number | string | null | undefined; // what it is sorted by
  first?: boolean; // the table is sorted by it at first
  down?: boolean; // at first the greatest on top
}
type Figures = (number | null)[]; // of the last hour, and null where nothing is known
/** Of a chart. `spans`: the line goes on where nothing is known. */
interface Line { label: string; colour: string; values: Figures; show: (value: number | null) => string; dash?: number[]; spans?: boolean }

declare class uPlot {
  constructor(options: object, data: (number | null)[][], target: HTMLElement);
  setData(data: (number | null)[][]): void;
  data: (number | null)[][];
  setSize(size: { width: number; height: number }): void;
  destroy(): void;
  width: number;
  static sync(key: string): { key: string };
}
