import { Chart } from "./chart";
import { isDark } from "./color";
import { embedded, PageJson, readPage } from "./data";
import { button, element, number, select, shown } from "./dom";
import { Generate } from "./generate";
import { HeadMap } from "./head";
import { Live } from "./live";
import { Overview } from "./overview";
import { PasskeyPanel } from "./passkey";
import { State } from "./state";
import { Tokens } from "./tokens";
import { WhatIf } from "./what_if";

const KEYS: [string, string][] = [
  ["m", "next metric"], ["v", "next model or difference"], ["o", "order heads by layer or by value"], ["p", "pin the head for the chart"],
  ["[ ]", "head before, after"], ["j k", "token before, after"], ["+ - 0", "zoom the map"], ["t", "light or dark"], ["?", "this help"]];

function modelChoices(state: State): [string, string][] {
  const { models, comparable } = state.page;
  const choices: [string, string][] = models.map((model, i) => [`${i}`, model.name]);
  if (comparable) choices.push(["difference", "difference"]);
  return choices;
}

function facts(state: State): HTMLElement[] {
  return state.page.models.map((model) => {
    const next = model.next.slice(0, 5).map((token) => `“${shown(token.text)}” ${number(100 * Math.exp(token.logProbability), 1)} %`).join(", ");
    const parts = [`${model.name}: temperature ${model.method}`, model.loss === null ? "" : `loss ${number(model.loss)}`,
      next ? `next token ${next}` : "", model.rounded ? "weights are within 0.001: the text is long" : ""];
    return element("li", {}, [parts.filter(Boolean).join("; ")]);
  });
}

function modelOptions(state: State): HTMLElement[] {
  return modelChoices(state).map(([value, text]) => element("option", { value }, [text]));
}

function toggleTheme(state: State): void {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  state.change({});
}

function chosen(id: string, value: string): void {
  (document.getElementById(id) as HTMLSelectElement).value = value;
}

function onKey(state: State, head: HeadMap, help: HTMLDialogElement, event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT|TEXTAREA)$/.test(target.tagName)) return;
  const heads = state.heads();
  const at = heads.findIndex((name) => name.attention === state.selected.attention && name.head === state.selected.head);
  const choices = modelChoices(state).map(([value]) => value);
  const actions: Record<string, () => void> = {
    m: () => state.change({ metric: (state.metric + 1) % state.page.metrics.length }),
    v: () => {
      const next = choices[(choices.indexOf(`${state.model}`) + 1) % choices.length];
      state.change({ model: next === "difference" ? next : Number(next) as 0 | 1 });
    },
    o: () => state.change({ sorted: !state.sorted }),
    p: () => state.togglePin(state.selected),
    "[": () => state.change({ selected: heads[Math.max(at - 1, 0)] }),
    "]": () => state.change({ selected: heads[Math.min(at + 1, heads.length - 1)] }),
    j: () => state.change({ token: state.token - 1 }),
    k: () => state.change({ token: state.token + 1 }),
    t: () => toggleTheme(state),
    "+": () => head.zoom(0.5), "=": () => head.zoom(0.5), "-": () => head.zoom(2), "0": () => head.reset(),
    "?": () => { if (help.open) help.close(); else help.showModal(); },
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function makeHelp(): HTMLDialogElement {
  const help = element("dialog", { id: "help" });
  help.append(element("h2", {}, ["Keys"]),
    element("dl", {}, KEYS.flatMap(([key, what]) => [element("dt", {}, [key]), element("dd", {}, [what])])),
    button("Close", "help-close", () => help.close()));
  return help;
}

function makeState(warning: HTMLElement): State {
  const json = embedded();
  const live = json.live ? new Live(() => state.change({}), (message) => { warning.textContent = message; }) : undefined;
  const state: State = new State(readPage(json, live));
  return state;
}

function start(): void {
  const warning = element("p", { class: "note", role: "alert", id: "warning" });
  const state = makeState(warning), help = makeHelp();
  const overview = new Overview(state), head = new HeadMap(state), tokens = new Tokens(state), chart = new Chart(state);
  const metrics: [string, string][] = state.page.metrics.map((metric, i) => [`${i}`, metric.label]);
  const setModel = (value: string): void => state.change({ model: value === "difference" ? value : Number(value) as 0 | 1 });
  const told = element("ul", { class: "facts", id: "facts" }, facts(state));
  const bar = element("div", { class: "bar" }, [
    select("Show ", "metric", metrics, (value) => state.change({ metric: Number(value) })),
    select("of ", "model", modelChoices(state), setModel),
    select("ordered by ", "order", [["layer", "layer"], ["value", "value"]], (value) => state.change({ sorted: value === "value" })),
    button("Light or dark", "theme", () => toggleTheme(state)), button("Keys", "keys", () => help.showModal())]);
  const replace = (json: PageJson): void => {
    state.page = readPage(json, state.page.live);
    document.getElementById("model")!.replaceChildren(...modelOptions(state));
    state.change({ model: state.page.comparable ? "difference" : 0 });
  };
  const { live, offers, models } = state.page;
  const work = [...live ? [new WhatIf(state, replace).root] : [], ...offers.generate ? [new Generate(state, replace).root] : []];
  const passkey = models[0].passkey ? [new PasskeyPanel(state).root] : [];
  document.getElementById("page")!.append(
    element("header", {}, [element("h1", {}, ["Where attention goes"]), told, bar, warning]),
    element("div", { class: "grid" }, [overview.root, head.root, chart.root, element("div", { class: "work" }, work),
      element("div", { class: "below" }, [...passkey, tokens.root])]), help);
  state.listen(() => {
    told.replaceChildren(...facts(state));
    chosen("metric", `${state.metric}`);
    chosen("model", `${state.model}`);
    chosen("order", state.sorted ? "value" : "layer");
    chosen("shade", state.shade);
  });
  document.addEventListener("keydown", (event) => onKey(state, head, help, event));
  window.addEventListener("resize", () => state.change({}));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => state.change({}));
  state.change({ token: state.attention().lastKnown });
}

start();
