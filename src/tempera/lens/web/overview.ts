import { amount, css, difference } from "./color";
import { element, number, sized, variable } from "./dom";
import { HeadName, State } from "./state";

const LABEL = 34, GAP = 1;

// All heads as a grid: layers by heads, or in the order of the metric.
export class Overview {
  readonly root: HTMLElement;
  private readonly canvas = element("canvas", { id: "overview", tabindex: "0", role: "application",
    "aria-label": "All heads; arrow keys move, p pins a head for the charts" });
  private readonly legend = element("p", { id: "legend", class: "note" });
  private cell = 16;
  private columns = 1;
  private order: HeadName[] = [];

  constructor(private readonly state: State) {
    this.root = element("section", { class: "panel overview" }, [element("h2", {}, ["All heads"]), this.canvas, this.legend]);
    this.canvas.addEventListener("click", (event) => {
      const name = this.under(event);
      if (!name) return;
      if (event.shiftKey) state.togglePin(name);
      else state.change({ selected: name });
    });
    this.canvas.addEventListener("mousemove", (event) => {
      const name = this.under(event);
      this.canvas.title = name ? `${state.label(name)}: ${number(state.value(name), 4)}` : "";
    });
    this.canvas.addEventListener("keydown", (event) => this.move(event));
    state.listen(() => this.draw());
  }

  private move(event: KeyboardEvent): void {
    const steps: Record<string, number> =
      { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.order[this.index() + step];
    if (next) this.state.change({ selected: next });
  }

  private index(): number {
    const { attention, head } = this.state.selected;
    return this.order.findIndex((name) => name.attention === attention && name.head === head);
  }

  private under(event: MouseEvent): HeadName | undefined {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - LABEL) / this.cell);
    const row = Math.floor((event.clientY - box.top) / this.cell);
    if (column < 0 || column >= this.columns || row < 0) return undefined;
    return this.order[row * this.columns + column];
  }

  draw(): void {
    const { state } = this;
    this.order = state.heads();
    const model = state.page.models[state.modelIndex()];
    this.columns = Math.max(...model.attentions.map((attention) => attention.heads));
    const rows = Math.ceil(this.order.length / this.columns);
    const room = Math.max(this.root.clientWidth - LABEL - 30, 120);
    this.cell = Math.max(7, Math.min(Math.floor(room / this.columns), 26, Math.floor(620 / rows)));
    const context = sized(this.canvas, LABEL + this.columns * this.cell + 2, rows * this.cell + 2);
    const values = this.order.map((name) => state.value(name));
    const known = values.filter((value): value is number => value !== null);
    const low = Math.min(...known), high = Math.max(...known);
    const most = Math.max(Math.abs(low), Math.abs(high));
    const color = (value: number | null): string => {
      if (value === null) return variable("--grid");
      if (state.model === "difference") return css(difference(most > 0 ? value / most : 0));
      return css(amount(high > low ? (value - low) / (high - low) : 0.5));
    };
    context.font = "11px sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = variable("--muted");
    for (let row = 0; row < rows; ++row) {
      if (row % Math.ceil(14 / this.cell) !== 0) continue;
      const attention = model.attentions[this.order[row * this.columns].attention];
      const text = state.sorted ? `${row * this.columns + 1}` : `${attention.role === "self" ? "" : attention.role[0]}${attention.layer}`;
      context.fillText(text, 2, (row + 0.5) * this.cell);
    }
    this.order.forEach((_, i) => {
      context.fillStyle = color(values[i]);
      context.fillRect(LABEL + (i % this.columns) * this.cell, Math.floor(i / this.columns) * this.cell, this.cell - GAP, this.cell - GAP);
    });
    for (const pinned of state.pinned) this.frame(context, pinned, variable("--pin"));
    this.frame(context, state.selected, variable("--accent"));
    const metric = state.page.metrics[state.metric].label;
    this.legend.textContent = state.model === "difference"
      ? `${metric}, second model less first: blue is less, orange more, up to ${number(most)}. Shift-click pins a head.`
      : `${metric}: from ${number(low)} (faint) to ${number(high)} (strong). Shift-click pins a head.`;
  }

  private frame(context: CanvasRenderingContext2D, name: HeadName, color: string): void {
    const i = this.order.findIndex((other) => other.attention === name.attention && other.head === name.head);
    if (i < 0) return;
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.strokeRect(LABEL + (i % this.columns) * this.cell, Math.floor(i / this.columns) * this.cell, this.cell - GAP, this.cell - GAP);
  }
}
