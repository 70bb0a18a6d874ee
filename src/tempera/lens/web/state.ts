import { Attention, Page } from "./data";

export type Shade = "from" | "to" | "loss" | "temperature";

export interface HeadName { attention: number; head: number }

// What is looked at. The views read it, and draw themselves anew when it changes.
export class State {
  metric = 0;
  model: 0 | 1 | "difference" = 0;
  sorted = false;
  selected: HeadName = { attention: 0, head: 0 };
  pinned: HeadName[] = [];
  token = 0;
  shade: Shade = "from";
  private readonly listeners: (() => void)[] = [];

  constructor(public page: Page) {}

  listen(listener: () => void): void { this.listeners.push(listener); }
  change(change: Partial<Pick<State, "metric" | "model" | "sorted" | "selected" | "token" | "shade">>): void {
    Object.assign(this, change);
    // Another model may have fewer layers or heads.
    const { attentions } = this.page.models[this.modelIndex()], at = Math.min(this.selected.attention, attentions.length - 1);
    this.selected = { attention: at, head: Math.min(this.selected.head, attentions[at].heads - 1) };
    this.token = Math.min(Math.max(this.token, 0), this.attention().rows - 1);
    for (const listener of this.listeners) listener();
  }

  // The model whose rows and keys are read where one is: with a difference the second.
  modelIndex(): number { return this.model === "difference" ? 1 : this.model; }
  attention(model = this.modelIndex()): Attention { return this.page.models[model].attentions[this.selected.attention]; }

  // Of all heads: the metric, or how much the second model's is larger.
  value(name: HeadName): number | null {
    const of = (model: number): number | null | undefined =>
      this.page.models[model].attentions[name.attention]?.metrics[this.page.metrics[this.metric].key][name.head];
    if (this.model !== "difference") return of(this.model) ?? null;
    const one = of(0), other = of(1);
    return one === null || other === null || one === undefined || other === undefined ? null : other - one;
  }

  heads(): HeadName[] {
    const all: HeadName[] = [];
    this.page.models[this.modelIndex()].attentions.forEach((attention, index) => {
      for (let head = 0; head < attention.heads; ++head) all.push({ attention: index, head });
    });
    if (this.sorted) all.sort((a, b) => (this.value(b) ?? -Infinity) - (this.value(a) ?? -Infinity));
    return all;
  }

  label(name: HeadName): string {
    const attention = this.page.models.map((model) => model.attentions[name.attention]).find(Boolean)!;
    const role = attention.role === "self" ? "" : `${attention.role} `;
    return `${role}layer ${attention.layer}, head ${name.head}`;
  }

  togglePin(name: HeadName): void {
    const same = (other: HeadName): boolean => other.attention === name.attention && other.head === name.head;
    this.pinned = this.pinned.some(same) ? this.pinned.filter((other) => !same(other)) : [...this.pinned, name];
    this.change({});
  }
}
