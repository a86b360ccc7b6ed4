// Figures as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `45 MiB`, `7.9 GiB`. */
export function bytes(count) {
  let value = Math.max(0, count ?? 0);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = value < 9.95 && unit > 1 ? 1 : 0;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** `40 ms`, `0.2 s`, `4.1 s`, `75 s`, `3 min`, `2 h`. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1)} s`;
  if (value < 119.5) return `${Math.round(value)} s`;
  if (value < 7170) return `${Math.round(value / 60)} min`;
  return value < 172_800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86_400)} days`;
}

const GROUPED = new Intl.NumberFormat("en-GB");

/** `31,260`; what isn't known is a dash. */
export function count(value) {
  return value === null || value === undefined || value < 0 ? "–" : GROUPED.format(value);
}

/** `12.3`, `140`: tokens per second. */
export function rate(value) {
  if (!(value > 0)) return "–";
  return value < 99.95 ? value.toFixed(1) : count(Math.round(value));
}

/** `1 request`, `3 requests`. */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

/** `14:02:33`, with the day when it isn't today. */
export function moment(unixSeconds) {
  const date = new Date(unixSeconds * 1000);
  const time = date.toLocaleTimeString("en-GB");
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? time : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** `a`, `a and b`, `a, b and c`. */
export function listed(names) {
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : (names[0] ?? "");
}
