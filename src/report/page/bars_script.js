'use strict';

// The bars of a timeline, as bar_code.h writes them: rows of {group, start, end, number}, times in seconds, in the order of their starts.
function readBars(data) {
  const bytes = Uint8Array.from(atob(data.bars), (letter) => letter.charCodeAt(0));
  let at = 0;
  const number = () => {
    let sum = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      sum += (byte & 127) * scale;
      if (byte < 128) return sum;
    }
  };
  const signed = () => {
    const n = number();
    return n % 2 ? -(n + 1) / 2 : n / 2;
  };
  const seconds = data.span / data.ticks;
  return data.rows.map((label) => {
    const bars = [], before = new Map();
    let end = 0;
    for (let left = number(); left > 0; left--) {
      const group = number(), last = before.get(group) || {ticks: 0, number: 0};
      const start = end + signed(), now = {ticks: last.ticks + signed(), number: last.number + signed()};
      end = start + now.ticks;
      before.set(group, now);
      bars.push({group: data.groups[group], start: start * seconds, end: end * seconds, number: now.number});
    }
    return {label, bars, stages: [...new Set(bars.map((bar) => bar.group[1]))].filter((stage) => stage >= 0).sort((a, b) => a - b)};
  });
}

// What is under way has lanes below a rank's own actions.
const laneOf = (bar) => ({dispatch: 'exchange', combine: 'exchange', transfer: 'sent', collective: 'sent'})[bar.group[0]] ?? null;

function describeBar(row, bar) {
  const [kind, stage, isMerged] = bar.group;
  const what = isMerged ? `${bar.number} actions, mostly ${kind}` : kind + (bar.number >= 0 ? ` of microbatch ${bar.number + 1}` : '');
  return `${row.label}: ${what}${stage >= 0 ? `, stage ${stage}` : ''}; ${inSeconds(bar.end - bar.start)}, from ${inSeconds(bar.start)}`;
}

function inSeconds(seconds) {
  for (const [unit, size] of [['s', 1], ['ms', 1e-3], ['µs', 1e-6]])
    if (Math.abs(seconds) >= size * 0.9995) return `${Number((seconds / size).toPrecision(4))} ${unit}`;
  return seconds === 0 ? '0 s' : `${Number((seconds / 1e-9).toPrecision(3))} ns`;
}
