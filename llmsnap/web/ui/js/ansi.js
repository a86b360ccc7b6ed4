// Colours of terminals: a line with escape sequences becomes pieces of text with a look.

const SEQUENCE = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g;
// Other control characters would be seen as boxes.
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f]/g;

/** The line without any sequence. */
export function plain(line) {
  return line.replace(SEQUENCE, "").replace(CONTROLS, "");
}

/** Yield `{text, classes, color}` of each piece; `color` is one of 256 or any, as CSS. */
export function* pieces(line) {
  let look = {};
  let from = 0;
  for (const found of line.matchAll(SEQUENCE)) {
    yield* piece(line.slice(from, found.index), look);
    if (found[2] === "m") look = restyled(look, found[1]);
    from = found.index + found[0].length;
  }
  yield* piece(line.slice(from), look);
}

function* piece(text, look) {
  const seen = text.replace(CONTROLS, "");
  if (!seen) return;
  const classes = ["bold", "dim", "italic", "underline"].filter((name) => look[name]);
  if (look.front !== undefined) classes.push(`front-${look.front}`);
  if (look.back !== undefined) classes.push(`back-${look.back}`);
  yield { text: seen, classes, color: look.color };
}

const SWITCHES = { 1: ["bold", true], 2: ["dim", true], 3: ["italic", true], 4: ["underline", true], 22: ["bold", false], 23: ["italic", false], 24: ["underline", false] };

function restyled(before, parameters) {
  const codes = parameters.split(/[;:]/).map(Number);
  let look = { ...before };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at];
    if (code === 0) look = {};
    else if (code in SWITCHES) look[SWITCHES[code][0]] = SWITCHES[code][1];
    else if (code >= 30 && code <= 37) set(look, code - 30);
    else if (code >= 90 && code <= 97) set(look, code - 90 + 8);
    else if (code >= 40 && code <= 47) look.back = code - 40;
    else if (code >= 100 && code <= 107) look.back = code - 100 + 8;
    else if (code === 39) set(look);
    else if (code === 49) delete look.back;
    else if (code === 38 || code === 48) at += extended(look, codes.slice(at), code === 38);
    if (code === 22) look.dim = false;
  }
  return look;
}

function set(look, front, color) {
  delete look.front;
  delete look.color;
  if (front !== undefined) look.front = front;
  if (color !== undefined) look.color = color;
}

/** One of 256 colours, or any; returns how many codes it took besides the first. */
function extended(look, [, way, ...rest], isFront) {
  if (way === 5) {
    if (isFront) rest[0] < 16 ? set(look, rest[0]) : set(look, undefined, paletted(rest[0]));
    return 2;
  }
  if (way === 2) {
    const [red, green, blue] = rest.map((part) => Math.min(255, part || 0));
    if (isFront) set(look, undefined, `rgb(${red} ${green} ${blue})`);
    return 4;
  }
  return 1;
}

function paletted(number) {
  if (!(number <= 255)) return undefined;
  if (number >= 232) {
    const grey = (number - 232) * 10 + 8;
    return `rgb(${grey} ${grey} ${grey})`;
  }
  const level = (part) => (part ? part * 40 + 55 : 0);
  const cube = number - 16;
  return `rgb(${level(Math.floor(cube / 36))} ${level(Math.floor(cube / 6) % 6)} ${level(cube % 6)})`;
}
