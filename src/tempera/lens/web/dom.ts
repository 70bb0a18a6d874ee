// Elements are made here and filled with text alone: what a token holds is never markup.

export function element<K extends keyof HTMLElementTagNameMap>(
  name: K, attributes: Record<string, string> = {}, children: (Node | string)[] = [],
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function select(label: string, id: string, options: [string, string][], changed: (value: string) => void): HTMLElement {
  const list = element("select", { id }, options.map(([value, text]) => element("option", { value }, [text])));
  list.addEventListener("change", () => changed(list.value));
  return element("label", {}, [label, list]);
}

export function button(text: string, id: string, pressed: () => void): HTMLButtonElement {
  const made = element("button", { id, type: "button" }, [text]);
  made.addEventListener("click", pressed);
  return made;
}

// A canvas as sharp as the screen; gives its context, in units of CSS pixels.
export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export function variable(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function save(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// The lines of a table anew; the one in focus keeps it.
export function replaceLines(table: HTMLElement, lines: HTMLElement[]): void {
  const focused = [...table.children].indexOf(document.activeElement as Element);
  table.replaceChildren(...lines);
  lines[focused]?.focus();
}

// A token as one line: blanks and line ends are seen.
export function shown(piece: string): string {
  if (piece === "") return "▫";
  return piece.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/^ | $/g, "·");
}

// 1, 2 or 5 times a power of ten, at least so large.
export function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(least)), share = least / power;
  return power * (share > 5 ? 10 : share > 2 ? 5 : share > 1 ? 2 : 1);
}

export function number(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1000 ? value.toPrecision(4) : value.toFixed(digits);
}
