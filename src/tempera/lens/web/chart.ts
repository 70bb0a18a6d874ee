import { button, element, number, roundStep, save, variable } from "./dom";
import { HeadName, State } from "./state";

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 560, HEIGHT = 250, LEFT = 52, RIGHT = 12, TOP = 12, BOTTOM = 36, LINE = 18;
// Of the series in theme.css: a colour for each head, and dashes for the second model.
const COLORS = 8;

interface Line { name: string; y: ArrayLike<number>; color: string; dash: string }

function svg(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, `${value}`);
  if (text) made.textContent = text;
  return made;
}

// In a legend.
function stroke(line: Line, x: number, y: number): SVGElement {
  return svg("line", { x1: x, x2: x + 26, y1: y, y2: y, stroke: line.color, "stroke-width": 2, "stroke-dasharray": line.dash });
}

// The metric by position, of the selected head and those that are pinned, of both models.
export class Chart {
  readonly root: HTMLElement;
  private readonly holder = element("div", { id: "chart" });
  private readonly legend = element("ul", { class: "legend" });
  private readonly title = element("h2");
  private drawn: Line[] = [];

  constructor(private readonly state: State) {
    this.root = element("section", { class: "panel chart" }, [this.title, this.holder, this.legend, element("div", { class: "bar" }, [
      button("Save chart (SVG)", "save-chart", () => save("positions.svg", new Blob([this.source()], { type: "image/svg+xml" }))),
      button("Save numbers (CSV)", "save-csv", () => save("heads.csv", new Blob([this.csv()], { type: "text/csv" }))),
    ])]);
    state.listen(() => this.draw());
  }

  // By itself: with the page's shade behind it and its legend below.
  private source(): string {
    const picture = this.holder.firstChild!.cloneNode(true) as SVGElement, height = HEIGHT + LINE * this.drawn.length + 4;
    picture.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    picture.prepend(svg("rect", { width: WIDTH, height, fill: variable("--shade") }));
    this.drawn.forEach((line, i) => {
      const y = HEIGHT + LINE * i + LINE / 2;
      picture.append(stroke(line, LEFT, y), svg("text", { x: LEFT + 34, y: y + 4, fill: variable("--ink") }, line.name));
    });
    return new XMLSerializer().serializeToString(picture);
  }

  // The metrics of all heads.
  private csv(): string {
    const { page } = this.state;
    const lines = [["model", "attention", "layer", "head", ...page.metrics.map((metric) => metric.key)].join(",")];
    page.models.forEach((model, m) => model.attentions.forEach((attention) => {
      for (let head = 0; head < attention.heads; ++head)
        lines.push([m + 1, attention.role, attention.layer, head, ...page.metrics.map((metric) => attention.metrics[metric.key][head] ?? "")].join(","));
    }));
    return lines.join("\n") + "\n";
  }

  private lines(): Line[] {
    const { state } = this, names: HeadName[] = [state.selected, ...state.pinned.filter((name) =>
      name.attention !== state.selected.attention || name.head !== state.selected.head)];
    const found: Line[] = [];
    names.forEach((name, i) => state.page.models.forEach((model, m) => {
      const attention = model.attentions[name.attention];
      if (!attention || name.head >= attention.heads) return;
      found.push({ name: `${state.label(name)}${state.page.models.length > 1 ? `, ${model.name}` : ""}`,
        y: attention.positions(state.metric, name.head), color: variable(`--series-${i % COLORS + 1}`), dash: m === 0 ? "" : "6 4" });
    }));
    return found;
  }

  draw(): void {
    const { state } = this, attention = state.attention(), metric = state.page.metrics[state.metric];
    const lines = this.lines(), bins = attention.bins;
    const centres = Array.from({ length: bins }, (_, i) => (Math.floor(i * attention.rows / bins) + Math.floor((i + 1) * attention.rows / bins) - 1) / 2);
    if (metric.key === "entropy")
      lines.push({ name: "ln n: as much as can be", y: centres.map((centre) => Math.log(attention.triangle ? centre + 1 : attention.keys)), color: variable("--muted"), dash: "2 3" });
    this.title.textContent = `${metric.label} by position`;
    const values = lines.flatMap((line) => Array.from(line.y)).filter(Number.isFinite);
    let low = Math.min(0, ...values), high = Math.max(...values, low + 1e-6);
    if (low === 0 && high < 1e-5) high = 1;
    const x = (i: number): number => LEFT + (attention.rows > 1 ? centres[i] / (attention.rows - 1) : 0.5) * (WIDTH - LEFT - RIGHT);
    const y = (value: number): number => HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${metric.label} by position`,
      "font-family": "sans-serif", "font-size": 11 });
    const muted = variable("--muted"), grid = variable("--grid");
    const step = roundStep((high - low) / 4);
    for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) {
      picture.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick), stroke: grid }),
        svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end", fill: muted }, number(tick, step < 0.1 ? 2 : step < 1 ? 1 : 0)));
    }
    const last = Math.max(attention.rows - 1, 1), tokenStep = Math.max(1, roundStep(last / 8));
    for (let token = 0; token <= last; token += tokenStep)
      picture.append(svg("text", { x: LEFT + token / last * (WIDTH - LEFT - RIGHT), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle", fill: muted }, `${token}`));
    picture.append(svg("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle", fill: muted }, "position"));
    for (const line of lines) {
      const points = Array.from(line.y).map((value, i) => Number.isFinite(value) ? `${x(i).toFixed(1)},${y(value).toFixed(1)}` : "").filter(Boolean);
      picture.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: line.color, "stroke-width": 1.8, "stroke-dasharray": line.dash }));
    }
    this.holder.replaceChildren(picture);
    this.drawn = lines;
    this.legend.replaceChildren(...lines.map((line) => {
      const key = svg("svg", { width: 26, height: 10 });
      key.append(stroke(line, 0, 5));
      return element("li", {}, [key, line.name]);
    }));
  }
}
