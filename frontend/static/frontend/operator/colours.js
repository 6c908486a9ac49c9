// The scale of the heat map: cividis, made to be read with any kind of colour vision (Nuñez, Anderton, Renslow 2018).
// Its lightness alone carries the value: dark is little, light is much.

const STOPS = [
  [0, 32, 77], [0, 51, 111], [57, 72, 107], [87, 92, 109], [112, 113, 115],
  [138, 135, 121], [166, 157, 117], [196, 181, 108], [228, 207, 91], [255, 234, 70],
];
export const NO_DATA = 255;
export const TOP_CODE = 254;

// share 0..1 -> [red, green, blue]
export function colourOf(share) {
  const at = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const [from, to] = [STOPS[Math.floor(at)], STOPS[Math.ceil(at)]];
  const part = at - Math.floor(at);
  return from.map((value, i) => Math.round(value + part * (to[i] - value)));
}

// The value of a code; null: nothing is known. See Scale in measures.py.
export function valueOf(code, map) {
  if (code === NO_DATA) {
    return null;
  }
  if (map.whole || code === 0) {
    return code;
  }
  return map.low * Math.pow(map.high / map.low, (code - 1) / (TOP_CODE - 1));
}

// Where a code lies on the scale, 0..1.
export function shareOf(code, map) {
  if (!map.whole) {
    return code / TOP_CODE;
  }
  // Most counts are small, and nought, one and two must be told apart at a glance.
  return Math.pow(code / Math.max(1, Math.min(map.high, TOP_CODE)), 0.7);
}

export function figure(value) {
  if (Number.isInteger(value)) {
    return value.toLocaleString("en");
  }
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// Pixels of every code: 256 little-endian RGBA words. noData: the colour where nothing is known.
export function palette(map, noData) {
  const words = new Uint32Array(256);
  const bytes = new Uint8Array(words.buffer);
  for (let code = 0; code < 256; code++) {
    const colour = code === NO_DATA ? noData : colourOf(shareOf(code, map));
    bytes.set([...colour, 255], 4 * code);
  }
  return words;
}

// [colour as text, words] of a few places of the scale, for a legend.
export function legend(map, noData, words) {
  const css = (rgb) => `rgb(${rgb.join(",")})`;
  const top = Math.min(map.high, TOP_CODE);
  const codes = map.whole
    ? top <= 9
      ? Array.from({ length: top + 1 }, (_, code) => code)
      : [0, 1, 2, 3, 4, 5].map((step) => Math.round((step * top) / 5))
    : map.high > 0
      ? [0, 1, 64, 127, 191, TOP_CODE]
      : [0];
  const distinct = [...new Set(codes)];
  const entries = distinct.map((code) => [css(colourOf(shareOf(code, map))), figure(valueOf(code, map))]);
  return [...entries, [css(noData), words.none]];
}
