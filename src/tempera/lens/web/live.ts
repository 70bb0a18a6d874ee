import { PageJson, Top } from "./data";

const MOST_ANSWERS = 400;

// The server that the page comes from. What it has not answered yet is undefined; `changed` is called when an answer is there.
export class Live {
  shown = 0;  // what the program shows; its answers belong to that
  private readonly answers = new Map<string, unknown>();
  private readonly asked = new Set<Promise<void>>();

  constructor(private readonly changed: () => void, private readonly failed: (message: string) => void) {}

  cells(address: string): Uint16Array | undefined {
    return this.ask(address, async (response) => new Uint16Array(await response.arrayBuffer()));
  }

  top(address: string): Top[] {
    return this.ask(address, async (response) => {
      const rows = await response.json() as [number, number, number, number][];
      return rows.map(([attention, head, key, weight]) => ({ attention, head, key, weight }));
    }) ?? [];
  }

  whatIf(factors: number[][]): Promise<PageJson> { return this.another("what-if", { factors }); }
  // Another text, and the same with one more token.
  read(text: string): Promise<PageJson> { return this.another("read", { text }); }
  grow(): Promise<PageJson> { return this.another("grow", {}); }

  // The folder in which the model with these temperatures is then.
  async write(factors: number[][]): Promise<string> { return (await (await this.post("write", { factors })).json() as { folder: string }).folder; }

  async losses(model: number): Promise<Float32Array> {
    return new Float32Array(await (await this.fetched(`losses?shown=${this.shown}&model=${model}`)).arrayBuffer());
  }

  // What the page then shows.
  private async another(address: string, what: object): Promise<PageJson> {
    return await (await this.post(address, what)).json() as PageJson;
  }

  private post(address: string, what: object): Promise<Response> { return this.fetched(address, { method: "POST", body: JSON.stringify(what) }); }

  private async fetched(address: string, options?: RequestInit): Promise<Response> {
    const response = await fetch(address, options);
    if (response.ok) return response;
    const text = await response.text();
    let told = text;
    try { told = (JSON.parse(text) as { error: { message: string } }).error.message; } catch { /* it is no JSON */ }
    throw new Error(told);
  }

  private ask<T>(address: string, read: (response: Response) => Promise<T>): T | undefined {
    if (this.answers.has(address)) return this.answers.get(address) as T | undefined;
    if (this.answers.size > MOST_ANSWERS) this.answers.delete(this.answers.keys().next().value as string);
    this.answers.set(address, undefined);
    const { shown } = this;
    const answered = this.fetched(address).then(read).then((answer) => {
      this.answers.set(address, answer);
      this.failed("");
      this.changed();
    }).catch((error: Error) => {
      this.answers.delete(address);
      // What belonged to a text before may not be there any more.
      if (shown === this.shown) this.failed(`${error.message}; is the program still running?`);
    }).finally(() => this.asked.delete(answered));
    this.asked.add(answered);
    return undefined;
  }

  // Until everything that was asked for has been drawn.
  async settled(): Promise<void> {
    while (this.asked.size > 0) await Promise.all(this.asked);
  }
}
