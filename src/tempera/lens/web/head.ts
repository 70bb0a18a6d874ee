import { Attention, Seen } from "./data";
import { amount, Color, css, difference, weightShare } from "./color";
import { button, element, number, roundStep, save, shown, sized, variable } from "./dom";
import { State } from "./state";

const LABEL = 74, LEAST_LABEL = 11, LEGEND = 40;

// One head: rows are queries, columns are keys, from the whole text to single cells.
export class HeadMap {
  readonly root: HTMLElement;
  private readonly canvas = element("canvas", { id: "map", tabindex: "0", role: "application",
    "aria-label": "Attention map; arrow keys move, plus and minus zoom, 0 shows all" });
  private readonly title = element("h2", { id: "head-title" });
  private readonly readout = element("p", { id: "readout", class: "note", "aria-live": "polite" });
  private window: Seen = { row: 0, key: 0, size: 1 };
  private size = 480;
  private shownHead = "";
  private cursor: { row: number; key: number } | undefined;
  private drag: { x: number; y: number; from: Seen; moved: boolean } | undefined;

  constructor(private readonly state: State) {
    this.root = element("section", { class: "panel map" }, [this.title, this.canvas, this.readout,
      element("div", { class: "bar" }, [
        button("Zoom in", "zoom-in", () => this.zoom(0.5)), button("Zoom out", "zoom-out", () => this.zoom(2)),
        button("Whole text", "zoom-all", () => this.reset()),
        button("Save picture", "save-map", () => this.save()),
      ])]);
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
    }, { passive: false });
    this.canvas.addEventListener("mousedown", (event) => {
      this.drag = { x: event.clientX, y: event.clientY, from: { ...this.window }, moved: false };
    });
    window.addEventListener("mouseup", () => { this.drag = undefined; });
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { this.cursor = undefined; this.draw(); });
    this.canvas.addEventListener("click", (event) => {
      const at = this.at(event);
      if (at && !this.dragged) state.change({ token: at.row });
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    state.listen(() => this.draw());
  }

  private dragged = false;
  private last: HTMLCanvasElement | undefined;
  private lastWhat = "";

  // With the page's shade behind it, on which its labels can be read.
  private save(): void {
    const picture = element("canvas"), context = picture.getContext("2d")!;
    picture.width = this.canvas.width;
    picture.height = this.canvas.height;
    context.fillStyle = variable("--shade");
    context.fillRect(0, 0, picture.width, picture.height);
    context.drawImage(this.canvas, 0, 0);
    picture.toBlob((blob) => blob && save("attention.png", blob));
  }

  private attention(): Attention { return this.state.attention(); }
  private longest(): number { return Math.max(this.attention().rows, this.attention().keys); }

  private key(event: KeyboardEvent): void {
    const step = this.window.size / 8;
    const moves: Record<string, () => void> = {
      ArrowLeft: () => this.moveTo(this.window.row, this.window.key - step),
      ArrowRight: () => this.moveTo(this.window.row, this.window.key + step),
      ArrowUp: () => this.moveTo(this.window.row - step, this.window.key),
      ArrowDown: () => this.moveTo(this.window.row + step, this.window.key),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), "0": () => this.reset(),
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  }

  reset(): void {
    this.window = { row: 0, key: 0, size: this.longest() };
    this.draw();
  }

  private moveTo(row: number, key: number): void {
    const most = Math.max(this.longest() - this.window.size, 0);
    this.window.row = Math.min(Math.max(row, 0), most);
    this.window.key = Math.min(Math.max(key, 0), most);
    this.draw();
  }

  // Around a cell, or around the selected token's row.
  zoom(factor: number, around = this.cursor): void {
    const { row, key, size } = this.window;
    const next = Math.min(Math.max(size * factor, Math.min(6, this.longest())), this.longest());
    const row0 = around ? around.row + 0.5 : row + size / 2, key0 = around ? around.key + 0.5 : key + size / 2;
    this.window.size = next;
    this.moveTo(row0 - (row0 - row) * next / size, key0 - (key0 - key) * next / size);
  }

  private at(event: MouseEvent): { row: number; key: number } | undefined {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.window.size / this.size;
    const row = Math.floor(this.window.row + (event.clientY - box.top - LABEL) * scale);
    const key = Math.floor(this.window.key + (event.clientX - box.left - LABEL) * scale);
    const inside = event.clientX - box.left >= LABEL && event.clientY - box.top >= LABEL;
    return inside && row >= 0 && key >= 0 && row < this.attention().rows && key < this.attention().keys ? { row, key } : undefined;
  }

  private hover(event: MouseEvent): void {
    if (this.drag) {
      const scale = this.window.size / this.size, { x, y, from } = this.drag;
      this.dragged = Math.abs(event.clientX - x) + Math.abs(event.clientY - y) > 4;
      if (this.dragged) this.moveTo(from.row - (event.clientY - y) * scale, from.key - (event.clientX - x) * scale);
      return;
    }
    this.dragged = false;
    this.cursor = this.at(event);
    this.draw();
  }

  draw(): void {
    const { state } = this, attention = this.attention();
    const now = `${state.selected.attention}.${attention.rows}.${attention.keys}`;
    if (this.shownHead !== now) this.window = { row: 0, key: 0, size: this.longest() };
    this.shownHead = now;
    const { label } = state.page.metrics[state.metric], less = state.model === "difference" ? ", difference" : "";
    this.title.textContent = `${state.label(state.selected)}: ${label.toLowerCase()}${less} ${number(state.value(state.selected))}`;
    // The whole map is in the window of a laptop.
    this.size = Math.max(240, Math.min(this.root.clientWidth - LABEL - 34, Math.max(window.innerHeight - 300, 360), 640));
    const context = sized(this.canvas, LABEL + this.size + 1, LABEL + this.size + LEGEND);
    this.picture(context);
    this.labels(context);
    this.legend(context);
    this.crosshair(context);
    this.tell();
  }

  // What the colours mean: weights differ by orders of magnitude.
  private legend(context: CanvasRenderingContext2D): void {
    const signed = this.state.model === "difference", width = Math.min(240, this.size / 2), y = LABEL + this.size + 10;
    for (let i = 0; i < width; ++i) {
      context.fillStyle = css(signed ? difference(2 * i / width - 1) : amount(i / width));
      context.fillRect(LABEL + i, y, 1.5, 9);
    }
    context.strokeStyle = variable("--grid");
    context.strokeRect(LABEL - 0.5, y - 0.5, width + 1, 10);
    context.fillStyle = variable("--muted");
    context.textAlign = "center";
    const marks = signed ? ["−1", "−0.01", "0", "+0.01", "+1"] : ["0.0001", "0.001", "0.01", "0.1", "1"];
    marks.forEach((mark, i) => context.fillText(mark, LABEL + i * width / 4, y + 20));
    context.textAlign = "left";
    const cells = this.window.size > this.size ? ", the largest of a pixel" : "";
    context.fillText(signed ? "weight, second model less first" : `weight${cells}`, LABEL + width + 22, y + 5);
  }

  private picture(context: CanvasRenderingContext2D): void {
    const { state } = this, whole = this.window.size === this.longest();
    const what = whole ? `${state.selected.attention}.${state.selected.head}.${state.model}` : "";
    // A text that grows is shown as it was until its new weights are here.
    const waits = this.attention().grids(state.selected.head, this.window).length === 0;
    if (waits && this.last && what !== "" && what === this.lastWhat) {
      this.put(context, this.last);
      return;
    }
    this.lastWhat = what;
    const values = this.pixels(this.attention());
    const before = this.state.model === "difference" ? this.pixels(this.state.attention(0)) : undefined;
    if (before) before.forEach((old, i) => { values[i] -= old; });
    this.paint(context, values, Math.round(this.size), before !== undefined);
  }

  // A pixel shows the largest weight of what falls on it; NaN where nothing does.
  private pixels(attention: Attention): Float32Array {
    const pixels = Math.round(this.size), { head } = this.state.selected, { row, key, size } = this.window;
    const values = new Float32Array(pixels * pixels).fill(NaN), owner = new Uint8Array(pixels * pixels);
    const place = (token: number, from: number): number => Math.floor((token - from) * pixels / size);
    attention.grids(head, this.window).forEach((grid, index) => {
      const { cell } = grid;
      const span = (at: number, from: number, all: number): [number, number] => {
        const first = Math.max(place(at, from), 0);
        return [first, Math.min(Math.max(place(Math.min(at + cell, all), from), first + 1), pixels)];
      };
      const lastRow = Math.min(Math.ceil((row + size - grid.row) / cell), grid.rows);
      const lastKey = Math.min(Math.ceil((key + size - grid.key) / cell), grid.keys);
      for (let r = Math.max(Math.floor((row - grid.row) / cell), 0); r < lastRow; ++r) {
        const [top, bottom] = span(grid.row + r * cell, row, attention.rows);
        for (let k = Math.max(Math.floor((key - grid.key) / cell), 0); k < lastKey; ++k) {
          const weight = grid.weight(r, k), [left, right] = span(grid.key + k * cell, key, attention.keys);
          for (let y = top; y < bottom; ++y)
            for (let x = left; x < right; ++x) {
              const at = y * pixels + x;
              // A finer grid takes the place of one before it.
              if (owner[at] === index + 1 && values[at] >= weight) continue;
              values[at] = weight;
              owner[at] = index + 1;
            }
        }
      }
    });
    if (attention.triangle) this.hideLaterKeys(attention, values, pixels);
    // A difference is told of cells alone: a key of one model and a cell of the other have none.
    if (!attention.whole && this.state.model !== "difference") this.topPoints(attention, values, pixels);
    return values;
  }

  // Of keys after a row nothing is asked for: their weights are 0.
  private hideLaterKeys(attention: Attention, values: Float32Array, pixels: number): void {
    const { row, key, size } = this.window, token = (pixel: number, from: number): number => Math.floor(from + pixel * size / pixels);
    for (let y = 0; y < pixels && token(y, row) < attention.rows; ++y)
      for (let x = 0; x < pixels && token(x, key) < attention.keys; ++x)
        if (token(x, key) > token(y, row) && Number.isNaN(values[y * pixels + x])) values[y * pixels + x] = 0;
  }

  // The keys that are known alone stand out of the cells that they are in.
  private topPoints(attention: Attention, values: Float32Array, pixels: number): void {
    const { head } = this.state.selected, { row, key, size } = this.window;
    if (pixels / size < 3) return;
    for (let r = Math.floor(row); r < Math.min(row + size, attention.rows); ++r)
      for (const top of attention.topKeys(head, r)) {
        const [y0, x0] = [(r - row) * pixels / size, (top.key - key) * pixels / size];
        for (let y = Math.max(Math.floor(y0), 0); y < Math.min(y0 + pixels / size, pixels); ++y)
          for (let x = Math.max(Math.floor(x0), 0); x < Math.min(x0 + pixels / size, pixels); ++x)
            values[y * pixels + x] = top.weight;
      }
  }

  private paint(context: CanvasRenderingContext2D, values: Float32Array, pixels: number, signed: boolean): void {
    const table: Color[] = [];
    for (let i = 0; i <= 256; ++i) table.push(signed ? difference(i / 128 - 1) : amount(i / 256));
    const image = new ImageData(pixels, pixels);
    for (let i = 0; i < values.length; ++i) {
      if (Number.isNaN(values[i])) continue;
      const share = signed ? (Math.sign(values[i]) * weightShare(Math.abs(values[i])) + 1) / 2 : weightShare(values[i]);
      const color = table[Math.round(share * 256)];
      image.data.set(color, i * 4);
      image.data[i * 4 + 3] = 255;
    }
    const part = element("canvas");
    part.width = part.height = pixels;
    part.getContext("2d")!.putImageData(image, 0, 0);
    this.last = part;
    this.put(context, part);
  }

  private put(context: CanvasRenderingContext2D, part: HTMLCanvasElement): void {
    context.imageSmoothingEnabled = false;
    context.drawImage(part, LABEL, LABEL, this.size, this.size);
    context.strokeStyle = variable("--grid");
    context.strokeRect(LABEL - 0.5, LABEL - 0.5, this.size + 1, this.size + 1);
  }

  // Tokens where there is room for them, else positions.
  private labels(context: CanvasRenderingContext2D): void {
    const attention = this.attention(), { row, key, size } = this.window, scale = this.size / size;
    const texts = this.state.page.texts;
    const step = scale < LEAST_LABEL ? Math.max(1, roundStep(60 / scale)) : 1;
    context.font = "11px sans-serif";
    context.fillStyle = variable("--ink");
    context.textBaseline = "middle";
    const text = (pieces: string[], i: number): string => scale >= LEAST_LABEL ? shown(pieces[i]).slice(0, 10) : `${i}`;
    const draw = (first: number, all: number, pieces: string[], put: (label: string, at: number) => void): void => {
      for (let i = Math.ceil(first / step) * step; i < Math.min(first + size, all); i += step) {
        const at = LABEL + (i + 0.5 - first) * scale;
        if (at < LABEL + this.size) put(text(pieces, i), at);
      }
    };
    draw(row, attention.rows, texts[attention.rowText], (label, at) => {
      context.textAlign = "right";
      context.fillText(label, LABEL - 5, at, LABEL - 8);
    });
    draw(key, attention.keys, texts[attention.keyText], (label, at) => {
      context.save();
      context.translate(at, LABEL - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(label, 0, 0, LABEL - 8);
      context.restore();
    });
    context.fillStyle = variable("--muted");
    context.textAlign = "left";
    context.fillText("keys →", 4, 14);
    context.fillText("queries ↓", 4, 30);
  }

  private crosshair(context: CanvasRenderingContext2D): void {
    const scale = this.size / this.window.size;
    const line = (row: number, color: string): void => {
      const y = LABEL + (row - this.window.row) * scale;
      if (y < LABEL || y > LABEL + this.size) return;
      context.strokeStyle = color;
      context.lineWidth = 1;
      context.strokeRect(LABEL, y, this.size, Math.max(scale, 1));
    };
    line(this.state.token, variable("--accent"));
    this.markNumber(context, scale);
    if (!this.cursor) return;
    const x = LABEL + (this.cursor.key - this.window.key) * scale, y = LABEL + (this.cursor.row - this.window.row) * scale;
    context.strokeStyle = variable("--pin");
    context.strokeRect(x, y, Math.max(scale, 3), Math.max(scale, 3));
  }

  // The keys of a hidden number, from top to bottom.
  private markNumber(context: CanvasRenderingContext2D, scale: number): void {
    context.strokeStyle = variable("--pin");
    for (const [first, count] of this.state.page.models[this.state.modelIndex()].passkey?.places ?? []) {
      const left = Math.max(LABEL + (first - this.window.key) * scale, LABEL);
      const right = Math.min(LABEL + (first + count - this.window.key) * scale, LABEL + this.size);
      if (right > left) context.strokeRect(left, LABEL, Math.max(right - left, 1), this.size);
    }
  }

  private tell(): void {
    const { state } = this, attention = this.attention();
    if (!this.cursor) {
      this.readout.textContent = "Move over the map for weights, click for a token. Wheel zooms, dragging moves.";
      return;
    }
    const texts = state.page.texts, { row, key } = this.cursor, { head } = state.selected;
    const tokenAt = (text: number, i: number): string => `${i} “${shown(texts[text][i])}”`;
    const known = (model: number): string => {
      const found = state.attention(model).at(head, row, key, this.window);
      if (!found) return "…";
      return found.exact ? `${number(found.weight, 5)}`
        : `at most ${number(found.weight, 5)} in queries ${found.row}–${found.row + found.rows - 1}, keys ${found.key}–${found.key + found.keys - 1}`;
    };
    const weight = state.model === "difference" ? `${known(0)} → ${known(1)}` : known(state.modelIndex());
    this.readout.textContent = `query ${tokenAt(attention.rowText, row)}, key ${tokenAt(attention.keyText, key)}: ${weight}`;
  }
}
