import { PageJson } from "./data";
import { button, element, number } from "./dom";
import { State } from "./state";

// The model continues a text, token by token, while the maps grow. Live pages of decoders only.
export class Generate {
  readonly root: HTMLElement;
  private readonly prompt = element("textarea", { id: "prompt", rows: "2", "aria-label": "A text that the model is to continue",
    placeholder: "A text that the model is to continue" });
  private readonly most = element("input", { id: "most-tokens", type: "number", min: "1", max: "4096", step: "1", value: "32" });
  private readonly note = element("p", { id: "generate-note", class: "note", role: "status" });
  private readonly go: HTMLButtonElement;
  private readonly more: HTMLButtonElement;
  private readonly stop: HTMLButtonElement;
  private stopped = true;

  constructor(private readonly state: State, private readonly replace: (json: PageJson) => void) {
    this.go = button("Continue this text", "generate", () => void this.run(this.prompt.value));
    this.more = button("Continue what is shown", "generate-more", () => void this.run(undefined));
    this.stop = button("Stop", "generate-stop", () => { this.stopped = true; });
    this.stop.disabled = true;
    this.root = element("section", { class: "panel generate" }, [element("h2", {}, ["Let it write"]), this.prompt, element("div", { class: "bar" }, [
      element("label", {}, ["Tokens ", this.most]), this.go, this.more, this.stop]), this.note]);
    this.note.textContent = "The likeliest token comes next. The page then shows the new text in place of the one before.";
  }

  private async run(prompt: string | undefined): Promise<void> {
    const live = this.state.page.live!, most = Number(this.most.value);
    if (!(Number.isInteger(most) && most >= 1 && most <= 4096)) {
      this.note.textContent = "Give a number of tokens from 1 to 4096.";
      return;
    }
    if (prompt === "") {
      this.note.textContent = "Give a text to continue.";
      return;
    }
    this.busy(true);
    const start = performance.now(), seconds = (): number => (performance.now() - start) / 1000;
    let written = 0;
    try {
      if (prompt !== undefined) await this.show(await live.read(prompt));
      while (!this.stopped && written < most && !this.ended()) {
        await this.show(await live.grow());
        ++written;
        this.note.textContent = `${written} of ${most} tokens written, ${number(written / seconds(), 1)} tokens/s.`;
      }
      const why = this.ended() ? "the model ends the text here" : this.stopped ? "stopped" : "as many as asked for";
      this.note.textContent = `${written} tokens written in ${number(seconds(), 1)} s: ${why}.`;
    } catch (error) {
      this.note.textContent = (error as Error).message;
    }
    this.busy(false);
  }

  private ended(): boolean { return this.state.page.models[0].ended; }

  // The maps of this text are seen before the next token comes.
  private async show(json: PageJson): Promise<void> {
    this.replace(json);
    this.state.change({ token: this.state.attention().rows - 1 });
    await this.state.page.live!.settled();
  }

  private busy(now: boolean): void {
    this.stopped = !now;
    this.go.disabled = this.more.disabled = now;
    this.stop.disabled = !now;
  }
}
