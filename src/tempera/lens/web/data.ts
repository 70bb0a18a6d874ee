// What the program put into the page (page_data.cc), and how its parts are read.

import { Live } from "./live";

export interface Metric { key: string; label: string }

interface AttentionJson {
  role: string; layer: number; heads: number; rows: number; keys: number;
  rowText: number; keyText: number; triangle: boolean;
  cell: number; stride: number; most: number; bins: number;
  metrics: Record<string, (number | null)[]>;
  byPosition: string; map?: string; topKey?: string; topWeight?: string;
}

interface ModelJson {
  name: string; method: string; loss: number | null; losses: string; rounded: boolean;
  next: { id: number; text: string; logProbability: number }[];
  ended: boolean; passkey: Passkey | null;
  attentions: AttentionJson[];
}

// A number that the text hides and asks for. heads: by attention, head and row of the answer: the weight on the number, and of the
// other keys the heaviest, with its weight.
export interface Passkey {
  wanted: string; given: string; right: boolean; places: [number, number][]; first: number; rows: number;
  heads: [number, number, number][][][];
}

// What the program behind a live page can do.
export interface Offers { write: boolean; generate: boolean }

export interface PageJson {
  version: number; live: boolean; metrics: Metric[]; texts: string[][]; comparable: boolean; models: ModelJson[]; offers?: Offers; shown?: number;
}

export interface Weight { key: number; weight: number }

// The largest weight of a rectangle of rows and keys; `exact` where that is one row and one key.
export interface Cell { row: number; rows: number; key: number; keys: number; weight: number; exact: boolean }

// Cells of a part of a map, from a row and a key on, each of `cell` tokens.
export interface Grid {
  row: number; key: number; cell: number; rows: number; keys: number; weight(row: number, key: number): number;
}

// The part of a map that is seen, in tokens.
export interface Seen { row: number; key: number; size: number }

// One of the keys that a token looks at most, of all heads.
export interface Top extends Weight { attention: number; head: number }

function bytes(base64: string): ArrayBuffer {
  const text = atob(base64);
  const all = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) all[i] = text.charCodeAt(i);
  return all.buffer;
}

const FULL_WEIGHT = 65535;

// Of an attention whose weights the page holds.
export class Attention {
  readonly role: string;
  readonly layer: number;
  readonly heads: number;
  readonly rows: number;
  readonly keys: number;
  readonly rowText: number;
  readonly keyText: number;
  readonly cell: number;
  readonly bins: number;
  readonly metrics: Record<string, (number | null)[]>;
  readonly triangle: boolean;
  private readonly mapRows: number;
  private readonly mapKeys: number;
  readonly stride: number;
  private readonly most: number;
  private readonly cellsOfHead: number;
  private readonly byPosition: Float32Array;
  private readonly map: Uint16Array;
  private readonly topKey: Uint16Array;
  private readonly topWeight: Uint16Array;

  constructor(json: AttentionJson) {
    this.role = json.role;
    this.layer = json.layer;
    this.heads = json.heads;
    this.rows = json.rows;
    this.keys = json.keys;
    this.rowText = json.rowText;
    this.keyText = json.keyText;
    this.triangle = json.triangle;
    this.cell = json.cell;
    this.stride = json.stride;
    this.most = json.most;
    this.bins = json.bins;
    this.metrics = json.metrics;
    this.mapRows = Math.ceil(json.rows / json.cell);
    this.mapKeys = Math.ceil(json.keys / json.cell);
    this.cellsOfHead = json.triangle ? this.mapRows * (this.mapRows + 1) / 2 : this.mapRows * this.mapKeys;
    this.byPosition = new Float32Array(bytes(json.byPosition));
    this.map = new Uint16Array(bytes(json.map ?? ""));
    this.topKey = new Uint16Array(bytes(json.topKey ?? ""));
    this.topWeight = new Uint16Array(bytes(json.topWeight ?? ""));
  }

  // The largest weight of a cell of the map.
  private mapCell(head: number, row: number, key: number): number {
    if (this.triangle && key > row) return 0;
    const at = this.triangle ? row * (row + 1) / 2 + key : row * this.mapKeys + key;
    return this.map[head * this.cellsOfHead + at] / FULL_WEIGHT;
  }

  // Whether every weight is known.
  get whole(): boolean { return this.cell === 1; }

  // The last row whose heaviest keys are known.
  get lastKnown(): number { return this.whole ? this.rows - 1 : Math.floor((this.rows - 1) / this.stride) * this.stride; }

  // What is there for a part of a head, the coarsest first.
  grids(head: number, _seen: Seen): Grid[] {
    return [{ row: 0, key: 0, cell: this.cell, rows: this.mapRows, keys: this.mapKeys, weight: (row, key) => this.mapCell(head, row, key) }];
  }

  // What is known of the weight of a row on a key.
  at(head: number, row: number, key: number, _seen: Seen): Cell | undefined {
    const known = this.cell === 1 ? undefined : this.topKeys(head, row).find((top) => top.key === key);
    if (known) return { row, rows: 1, key, keys: 1, weight: known.weight, exact: true };
    const r = Math.floor(row / this.cell), k = Math.floor(key / this.cell);
    const rows = Math.min(this.cell, this.rows - r * this.cell), keys = Math.min(this.cell, this.keys - k * this.cell);
    return {
      row: r * this.cell, rows, key: k * this.cell, keys,
      weight: this.mapCell(head, r, k), exact: rows === 1 && keys === 1,
    };
  }

  // By row, the weight on a key; null where it is not known.
  column(head: number, key: number): (row: number) => number | null {
    return (row) => this.cell === 1 ? this.mapCell(head, row, key)
      : this.topKeys(head, row).find((top) => top.key === key)?.weight ?? null;
  }

  // The keys of a row that the page has, the heaviest first: all of them where cells are single, else the few with most weight.
  topKeys(head: number, row: number): Weight[] {
    const found: Weight[] = [];
    if (this.cell === 1) {
      const end = this.triangle ? row + 1 : this.keys;
      for (let key = 0; key < end; ++key) found.push({ key, weight: this.mapCell(head, row, key) });
      return found.sort((a, b) => b.weight - a.weight);
    }
    const kept = Math.floor(row / this.stride);
    if (kept * this.stride !== row) return found;
    const first = (head * Math.ceil(this.rows / this.stride) + kept) * this.most;
    for (let i = first; i < first + this.most; ++i)
      if (this.topWeight[i] > 0) found.push({ key: this.topKey[i], weight: this.topWeight[i] / FULL_WEIGHT });
    return found;
  }

  // Means (of logits: the largest) over the positions of each bin; metric by its place in the page's list.
  positions(metric: number, head: number): Float32Array {
    const first = (metric * this.heads + head) * this.bins;
    return this.byPosition.subarray(first, first + this.bins);
  }

  binOf(row: number): number {
    return Math.min(this.bins - 1, Math.floor(((row + 1) * this.bins - 1) / this.rows));
  }
}

const TILE = 256, MOST_CELLS = 512, KEPT_OF_HEAD = 3;

// Of an attention whose weights the server computes when they are asked for: tiles of 256 x 256 cells, each of a power of two.
class LiveAttention extends Attention {
  constructor(json: AttentionJson, private readonly live: Live, private readonly address: string) { super(json); }

  get whole(): boolean { return true; }

  private cells(head: number, row: number, rows: number, key: number, keys: number, cell: number): Uint16Array | undefined {
    return this.live.cells(`map?${this.address}&head=${head}&row=${row}&rows=${rows}&key=${key}&keys=${keys}&cell=${cell}`);
  }

  private tile(head: number, cell: number, row: number, key: number): Grid | undefined {
    const side = TILE * cell, rows = Math.min(side, this.rows - row), keys = Math.min(side, this.keys - key);
    const found = this.cells(head, row, rows, key, keys, cell);
    const width = Math.ceil(keys / cell);
    return found && { row, key, cell, rows: Math.ceil(rows / cell), keys: width, weight: (r, k) => found[r * width + k] / FULL_WEIGHT };
  }

  private level(head: number, seen: Seen): Grid[] {
    const cell = 2 ** Math.max(0, Math.ceil(Math.log2(seen.size / MOST_CELLS))), side = TILE * cell, found: Grid[] = [];
    for (let row = Math.floor(seen.row / side) * side; row < Math.min(seen.row + seen.size, this.rows); row += side)
      for (let key = Math.floor(seen.key / side) * side; key < Math.min(seen.key + seen.size, this.keys); key += side) {
        if (this.triangle && key >= row + side) continue;
        const grid = this.tile(head, cell, row, key);
        if (grid) found.push(grid);
      }
    return found;
  }

  grids(head: number, seen: Seen): Grid[] {
    const all = { row: 0, key: 0, size: Math.max(this.rows, this.keys) };
    return seen.size > all.size / 2 ? this.level(head, all) : [...this.level(head, all), ...this.level(head, seen)];
  }

  at(head: number, row: number, key: number, seen: Seen): Cell | undefined {
    for (const grid of this.grids(head, seen).reverse()) {
      const r = Math.floor((row - grid.row) / grid.cell), k = Math.floor((key - grid.key) / grid.cell);
      if (r < 0 || k < 0 || r >= grid.rows || k >= grid.keys) continue;
      const from = grid.row + r * grid.cell, first = grid.key + k * grid.cell;
      return { row: from, rows: Math.min(grid.cell, this.rows - from), key: first, keys: Math.min(grid.cell, this.keys - first),
        weight: grid.weight(r, k), exact: grid.cell === 1 };
    }
    return this.triangle && key > row ? { row, rows: 1, key, keys: 1, weight: 0, exact: true } : undefined;
  }

  column(head: number, key: number): (row: number) => number | null {
    const found = this.cells(head, 0, this.rows, key, 1, 1);
    return (row) => found ? found[row] / FULL_WEIGHT : null;
  }

  topKeys(head: number, row: number): Weight[] {
    const found = this.cells(head, row, 1, 0, this.keys, 1);
    const seen = found ? (this.triangle ? found.subarray(0, row + 1) : found) : [];
    return Array.from(seen, (weight, key) => ({ key, weight: weight / FULL_WEIGHT })).sort((a, b) => b.weight - a.weight);
  }
}

export interface Model {
  name: string; method: string; loss: number | null; losses: Float32Array; rounded: boolean;
  next: { id: number; text: string; logProbability: number }[];
  ended: boolean; passkey: Passkey | null;
  attentions: Attention[];
  // The heaviest keys of a row of the attention's text, over all heads.
  heaviest(attention: number, row: number): Top[];
}

export interface Page {
  metrics: Metric[]; texts: string[][]; comparable: boolean; models: Model[]; live: Live | undefined; offers: Offers;
}

function heaviest(attentions: Attention[], chosen: number, row: number): Top[] {
  return attentions.flatMap((attention, index) => {
    if (attention.rowText !== attentions[chosen].rowText || row >= attention.rows) return [];
    return Array.from({ length: attention.heads }, (_, head) => attention.topKeys(head, row).slice(0, KEPT_OF_HEAD)
      .map((top) => ({ ...top, attention: index, head }))).flat();
  });
}

function readModel(json: ModelJson, index: number, live: Live | undefined): Model {
  const attentions = json.attentions.map((attention, i) =>
    live ? new LiveAttention(attention, live, `shown=${live.shown}&model=${index}&attention=${i}`) : new Attention(attention));
  return {
    ...json, attentions, losses: new Float32Array(bytes(json.losses)),
    heaviest: (chosen, row) => live ? live.top(`top?shown=${live.shown}&model=${index}&attention=${chosen}&row=${row}`) : heaviest(attentions, chosen, row),
  };
}

export function readPage(json: PageJson, live: Live | undefined): Page {
  if (live) live.shown = json.shown ?? 0;
  return { metrics: json.metrics, texts: json.texts, comparable: json.comparable, live, offers: json.offers ?? { write: false, generate: false },
    models: json.models.map((model, index) => readModel(model, index, live)) };
}

export function embedded(): PageJson { return JSON.parse(document.getElementById("data")!.textContent!) as PageJson; }
