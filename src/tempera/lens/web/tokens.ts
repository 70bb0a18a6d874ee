import { amount, css, textOn, weightShare } from "./color";
import { button, element, number, replaceLines, select, shown } from "./dom";
import { Shade, State } from "./state";

const PAGE = 2048, TOP = 24;

// The text with a colour for every token, and where the selected token looks.
export class Tokens {
  readonly root: HTMLElement;
  private readonly text = element("div", { id: "text", tabindex: "0", role: "application",
    "aria-label": "Text; arrow keys move to the token before and after" });
  private readonly note = element("p", { id: "text-note", class: "note" });
  private readonly paging = element("span", { class: "bar" });
  private readonly table = element("tbody", { id: "top-keys" });
  private readonly caption = element("caption", { id: "top-caption" });
  private readonly withoutFirst = element("input", { id: "without-first", type: "checkbox" });
  private spans: HTMLElement[] = [];
  private first = -1;
  private textIndex = -1;
  private pieces: string[] = [];

  constructor(private readonly state: State) {
    const options: [string, string][] = [["from", "weight from the selected token"], ["to", "weight to the selected token"],
      ["loss", "loss"], ["temperature", "temperature"]];
    const head = element("thead", {}, [element("tr", {}, ["Head", "Key", "Position", "Weight"].map((text) => element("th", { scope: "col" }, [text])))]);
    this.root = element("section", { class: "panel text" }, [
      element("h2", {}, ["Text"]),
      element("div", { class: "bar" }, [select("Colour by ", "shade", options, (value) => state.change({ shade: value as Shade })), this.paging,
        element("label", { title: "Heads put there what they need nowhere else" }, [this.withoutFirst, " Leave out the first token in the list"])]),
      this.note,
      element("div", { class: "columns" }, [this.text, element("div", { class: "scroll" }, [element("table", {}, [this.caption, head, this.table])])]),
    ]);
    this.text.addEventListener("click", (event) => {
      const index = (event.target as HTMLElement).dataset.index;
      if (index !== undefined && this.textIndex === state.attention().rowText) state.change({ token: Number(index) });
    });
    this.text.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      state.change({ token: state.token + step });
    });
    this.withoutFirst.addEventListener("change", () => state.change({}));
    state.listen(() => this.draw());
  }

  // With "from" the keys are coloured; else the queries.
  private shownText(): number {
    const attention = this.state.attention();
    return this.state.shade === "from" ? attention.keyText : attention.rowText;
  }

  private build(): void {
    const text = this.shownText(), pieces = this.state.page.texts[text];
    const first = Math.floor(Math.min(this.state.token, pieces.length - 1) / PAGE) * PAGE;
    if (first === this.first && text === this.textIndex && pieces === this.pieces) return;
    this.first = first;
    this.pieces = pieces;
    this.textIndex = text;
    this.spans = pieces.slice(first, first + PAGE).map((piece, i) =>
      element("span", { "data-index": `${first + i}` }, [piece === "" ? "▫" : piece]));
    this.text.replaceChildren(...this.spans);
    const go = (token: number): void => this.state.change({ token });
    this.paging.replaceChildren(...pieces.length <= PAGE ? [] : [
      button("Before", "page-before", () => go(Math.max(first - PAGE, 0))),
      ` tokens ${first}–${Math.min(first + PAGE, pieces.length) - 1} of ${pieces.length} `,
      button("After", "page-after", () => go(Math.min(first + PAGE, pieces.length - 1)))]);
  }

  // By token: how strong its colour is, and the value that it stands for.
  private values(): (index: number) => number | null {
    const { state } = this, attention = state.attention(), { head } = state.selected, { token } = state;
    switch (state.shade) {
      case "from": {
        const weights = new Map(attention.topKeys(head, token).map((top) => [top.key, top.weight]));
        return (index) => weights.get(index) ?? null;
      }
      case "to":
        // A token that is only written is no key, and one that is only read no query.
        return attention.rowText === attention.keyText ? attention.column(head, token) : () => null;
      case "loss":
        return (index) => attention.rowText === state.page.texts.length - 1 ? state.page.models[state.modelIndex()].losses[index] ?? null : null;
      case "temperature": {
        const metric = state.page.metrics.findIndex((one) => one.key === "temperature");
        const bins = attention.positions(metric, head);
        return (index) => bins[attention.binOf(index)] ?? null;
      }
    }
  }

  draw(): void {
    this.build();
    const places = this.state.page.models[this.state.modelIndex()].passkey?.places ?? [];
    const { state } = this, value = this.values(), weights = state.shade === "from" || state.shade === "to";
    const all = this.spans.map((_, i) => value(this.first + i));
    const known = all.filter((one): one is number => one !== null && Number.isFinite(one));
    const low = Math.min(...known), high = Math.max(...known);
    this.spans.forEach((span, i) => {
      const one = all[i], index = this.first + i;
      const share = one === null || !Number.isFinite(one) ? 0 : weights ? weightShare(one) : high > low ? 0.08 + 0.82 * (one - low) / (high - low) : 0.3;
      const color = amount(share);
      span.style.backgroundColor = share > 0 ? css(color) : "";
      span.style.color = share > 0 ? textOn(color) : "";
      span.title = `${index}: ${number(one, 5)}`;
      span.classList.toggle("selected", index === state.token && this.textIndex === state.attention().rowText);
      span.classList.toggle("number", places.some(([first, count]) => index >= first && index < first + count));
    });
    this.reveal();
    const attention = state.attention(), { whole } = attention;
    const what = { from: `Where token ${state.token} looks`, to: `Who looks at token ${state.token}`, loss: "Loss of each token, in nats",
      temperature: "Temperature, mean of neighbouring positions" }[state.shade];
    const range = weights || known.length === 0 ? "" : `: from ${number(low)} to ${number(high)}`;
    this.note.textContent = `${what}${range}.${weights && !whole ? ` The page holds the heaviest keys of ${attention.stride > 1 ? `every ${attention.stride}th` : "each"} token.` : ""}`;
    this.topKeys();
  }

  // Scrolls the text, and not the page, to the selected token.
  private reveal(): void {
    const span = this.spans[this.state.token - this.first];
    if (!span) return;
    const top = span.offsetTop - this.text.offsetTop;
    if (top < this.text.scrollTop || top > this.text.scrollTop + this.text.clientHeight - 40)
      this.text.scrollTop = top - this.text.clientHeight / 2;
  }

  // Of all heads, the keys that the selected token looks at most.
  private topKeys(): void {
    const { state } = this, model = state.page.models[state.modelIndex()], chosen = state.attention();
    const seen = model.heaviest(state.selected.attention, state.token).filter((top) => top.key > 0 || !this.withoutFirst.checked);
    const rows = seen.map((top) => ({ ...top, label: state.label(top),
      piece: state.page.texts[model.attentions[top.attention].keyText][top.key] }));
    rows.sort((a, b) => b.weight - a.weight);
    const piece = state.page.texts[chosen.rowText][state.token];
    this.caption.textContent = `Token ${state.token} “${shown(piece)}”: ${rows.length > 0 || state.page.live ? "the heaviest keys over all heads" : "its heaviest keys are not in this file"}`;
    replaceLines(this.table, rows.slice(0, TOP).map((row) => {
      const line = element("tr", { tabindex: "0" }, [
        element("td", {}, [row.label]), element("td", { class: "piece" }, [shown(row.piece)]),
        element("td", { class: "number" }, [`${row.key}`]), element("td", { class: "number" }, [number(row.weight, 5)])]);
      const choose = (): void => state.change({ selected: { attention: row.attention, head: row.head } });
      line.addEventListener("click", choose);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
      return line;
    }));
  }
}
