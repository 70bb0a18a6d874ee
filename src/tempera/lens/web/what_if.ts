import { PageJson } from "./data";
import { button, element, number, select } from "./dom";
import { State } from "./state";

type Scope = "head" | "layer" | "all";

// Other temperatures for a head, a layer or all, and what the model does with them. Live pages only.
export class WhatIf {
  readonly root: HTMLElement;
  private readonly factor = element("input", { id: "factor", type: "number", min: "0.01", max: "100", step: "0.05", value: "0.5" });
  private readonly note = element("p", { id: "what-if-note", class: "note", role: "status" });
  private readonly apply: HTMLButtonElement;
  private scope: Scope = "head";
  private factors: number[][];
  private runs = 0;

  constructor(private readonly state: State, private readonly replace: (json: PageJson) => void) {
    this.factors = this.ones();
    this.apply = button("Try it", "what-if", () => void this.run());
    const scopes: [string, string][] = [["head", "the selected head"], ["layer", "its layer"], ["all", "all heads"]];
    state.listen(() => this.nameHead());
    this.root = element("section", { class: "panel what-if" }, [element("h2", {}, ["What if"]), element("div", { class: "bar" }, [
      element("label", {}, ["Temperature times ", this.factor]), select("of ", "scope", scopes, (value) => { this.scope = value as Scope; }),
      this.apply, button("As it was", "what-if-reset", () => { this.factors = this.ones(); void this.send(); }), ...this.writing()]), this.note]);
    this.note.textContent = "The model reads the text again; the result stands beside it as a second model.";
  }

  private writing(): HTMLElement[] {
    return this.state.page.offers.write ? [button("Export these temperatures", "write", () => void this.write())] : [];
  }

  private async write(): Promise<void> {
    this.forget();
    this.note.textContent = "The program writes the model…";
    try {
      this.note.textContent = `A model with these temperatures is in ${await this.state.page.live!.write(this.factors)}.`;
    } catch (error) {
      this.note.textContent = (error as Error).message;
    }
  }

  // Which head is meant is said where it is changed.
  private nameHead(): void {
    const list = this.root.querySelector("select")!, { selected } = this.state, head = this.state.label(selected);
    list.options[0].textContent = head;
    list.options[1].textContent = `all of ${head.slice(0, head.lastIndexOf(","))}`;
  }

  private ones(): number[][] { return this.state.page.models[0].attentions.map((attention) => new Array<number>(attention.heads).fill(1)); }

  // Another text stands there alone, with the temperatures as they are.
  private forget(): void { if (this.state.page.models.length < 2) this.factors = this.ones(); }

  private async run(): Promise<void> {
    this.forget();
    const factor = Number(this.factor.value), { attention, head } = this.state.selected;
    if (!(factor >= 0.01 && factor <= 100)) {
      this.note.textContent = "Give a factor from 0.01 to 100.";
      return;
    }
    this.factors = this.factors.map((heads, i) => heads.map((old, j) =>
      this.scope === "all" || (i === attention && (this.scope === "layer" || j === head)) ? factor : old));
    await this.send();
  }

  // They come later than the maps: the losses of all tokens take as long as many layers.
  private async addLosses(): Promise<void> {
    const { page } = this.state, model = page.models[1];
    if (model.loss !== null || page.models[0].loss === null) return;
    model.losses = await page.live!.losses(1);
    const known = Array.from(model.losses).filter(Number.isFinite);
    model.loss = known.length > 0 ? known.reduce((sum, loss) => sum + loss, 0) / known.length : null;
    this.state.change({});
  }

  private async send(): Promise<void> {
    this.apply.disabled = true;
    this.note.textContent = "The model reads the text…";
    const start = performance.now();
    try {
      this.replace(await this.state.page.live!.whatIf(this.factors));
      const changed = this.factors.flat().filter((factor) => factor !== 1).length;
      const seconds = number((performance.now() - start) / 1000, 1), mine = ++this.runs;
      const tell = (): void => {
        const [one, other] = this.state.page.models.map((model) => model.loss);
        if (mine === this.runs) this.note.textContent = `${changed} ${changed === 1 ? "head" : "heads"} changed, in ${seconds} s; loss ${number(one, 4)} → ${other === null ? "…" : number(other, 4)}.`;
      };
      tell();
      await this.addLosses();
      tell();
    } catch (error) {
      this.note.textContent = (error as Error).message;
    }
    this.apply.disabled = false;
  }
}
