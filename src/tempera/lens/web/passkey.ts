import { button, element, number, replaceLines, shown } from "./dom";
import { HeadName, State } from "./state";

const TOP = 16;

// Where the heads looked when the model wrote a number that the text hides.
export class PasskeyPanel {
  readonly root: HTMLElement;
  private readonly note = element("p", { id: "passkey-note", class: "note" });
  private readonly rows = element("div", { class: "bar", id: "passkey-rows" });
  private readonly table = element("tbody", { id: "passkey-heads" });
  private readonly caption = element("caption", { id: "passkey-caption" });

  constructor(private readonly state: State) {
    const titles: [string, string][] = [["Head", ""], ["On the number", "number"], ["Most beside it", ""], ["Position", "number"], ["Weight", "number"]];
    const head = element("thead", {}, [element("tr", {}, titles.map(([text, kind]) => element("th", { scope: "col", class: kind }, [text])))]);
    this.root = element("section", { class: "panel passkey" }, [element("h2", {}, ["The hidden number"]), this.note, this.rows,
      element("div", { class: "scroll" }, [element("table", {}, [this.caption, head, this.table])])]);
    state.listen(() => this.draw());
  }

  private draw(): void {
    const { state } = this, model = state.page.models[state.modelIndex()], { passkey } = model;
    this.root.hidden = passkey === null;
    if (!passkey) return;
    const text = state.page.texts[0], places = passkey.places.map(([first, count]) => `${first}–${first + count - 1}`).join(" and ");
    this.note.textContent = `Asked for ${passkey.wanted}, the model wrote “${shown(passkey.given)}”: ${passkey.right ? "right" : "wrong"}. `
      + `The text says the number at ${places}, where it is underlined.`;
    this.rows.replaceChildren("Row that writes ", ...Array.from({ length: passkey.rows }, (_, i) => {
      const row = passkey.first + i, made = button(shown(text[row + 1]), `passkey-row-${i}`, () => state.change({ token: row }));
      made.setAttribute("aria-pressed", `${row === state.token}`);
      return made;
    }), button("The number in the text", "passkey-place", () => state.change({ token: passkey.places[0][0] })));
    const at = Math.min(Math.max(state.token - passkey.first, 0), passkey.rows - 1), row = passkey.first + at;
    const heads = passkey.heads.flatMap((all, attention) => all.map((looks, head) => ({ attention, head, look: looks[at] })));
    heads.sort((a, b) => b.look[0] - a.look[0]);
    this.caption.textContent = `Row ${row}, which writes “${shown(text[row + 1])}”: the heads that look at the number most, and the other key that each `
      + "looks at most, the first token left out";
    replaceLines(this.table, heads.slice(0, TOP).map(({ attention, head, look: [on, key, weight] }) =>
      this.line({ attention, head }, row, [number(on, 5), shown(text[key]), `${key}`, number(weight, 5)])));
  }

  private line(name: HeadName, row: number, [on, piece, key, weight]: string[]): HTMLElement {
    const { state } = this, choose = (): void => state.change({ selected: name, token: row });
    const line = element("tr", { tabindex: "0" }, [element("td", {}, [state.label(name)]), element("td", { class: "number" }, [on]),
      element("td", { class: "piece" }, [piece]), element("td", { class: "number" }, [key]), element("td", { class: "number" }, [weight])]);
    line.addEventListener("click", choose);
    line.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
    return line;
  }
}
