// Scales whose lightness goes one way, so that they read without seeing hues; light and dark.

export type Color = [number, number, number];

function parse(stops: string): Color[] {
  return stops.split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.substring(at, at + 2), 16)) as Color);
}

const SCALES = {
  light: {
    amount: parse("ffffff dce8f4 a6c6e4 5f96cd 2b639f 0a2c5a"),
    difference: parse("17508f 6d9fd0 f4f4f4 eda25a a84a00"),
  },
  dark: {
    amount: parse("1b1e25 15406e 4a6690 8a9077 d2b84c ffee66"),
    difference: parse("8cc2ff 356ba6 22252d a5601b ffb765"),
  },
};

export function isDark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function between(stops: Color[], t: number): Color {
  const at = Math.min(Math.max(t, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2), share = at - low;
  return [0, 1, 2].map((i) => Math.round(stops[low][i] * (1 - share) + stops[low + 1][i] * share)) as Color;
}

// t in [0, 1].
export function amount(t: number): Color { return between(SCALES[isDark() ? "dark" : "light"].amount, t); }
// t in [-1, 1].
export function difference(t: number): Color { return between(SCALES[isDark() ? "dark" : "light"].difference, (t + 1) / 2); }

export function css(color: Color): string { return `rgb(${color[0]},${color[1]},${color[2]})`; }

export function textOn(color: Color): string {
  return 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 140 ? "#111318" : "#ffffff";
}

const LEAST_EXPONENT = 4;
// Weights span orders of magnitude: 1e-4 and below is 0, and 1 is 1.
export function weightShare(weight: number): number {
  return weight <= 0 ? 0 : Math.max(0, 1 + Math.log10(weight) / LEAST_EXPONENT);
}
