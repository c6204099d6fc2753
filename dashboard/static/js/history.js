// Rates of the last minutes by second, for charts. The server has a quarter of an hour; what comes
// while the page is open is added here.

import {onMessage, rows} from "./live.js";
import {ask} from "./ui.js";

export const SECONDS = 900;
/** Of each SPU, and of the cluster: [seconds since 1970, bytes in, bytes out, p99 of appends]. */
const series = new Map();
const topics = new Map();
let last = 0;

/** The last values of one SPU ("" for the cluster): lists of times, in, out, p99 in µs. */
export function spuHistory(name) {
  return series.get(name) ?? [[], [], [], []];
}

/** The last values of one topic: lists of times, records, bytes. */
export function topicHistory(name) {
  return topics.get(name) ?? [[], [], []];
}

function push(map, name, values) {
  let lists = map.get(name);
  if (!lists) map.set(name, (lists = values.map(() => [])));
  values.forEach((value, index) => {
    lists[index].push(value);
    if (lists[index].length > SECONDS) lists[index].shift();
  });
}

/** Begin: what the server knows first, then what comes. */
export function follow() {
  onMessage((message) => {
    const at = message.tables.health?.rows.cluster?.at;
    if (!at || Math.floor(at / 1000) <= last) return;
    last = Math.floor(at / 1000);
    sample(last);
  });
  load();
}

function sample(second) {
  let received = 0;
  let sent = 0;
  let p99 = null;
  for (const spu of rows("spus").values()) {
    received += spu.in ?? 0;
    sent += spu.out ?? 0;
    if (spu.appendP99Us != null) p99 = Math.max(p99 ?? 0, spu.appendP99Us);
    push(series, spu.name, [second, spu.in ?? 0, spu.out ?? 0, spu.appendP99Us]);
  }
  push(series, "", [second, received, sent, p99]);
  for (const topic of rows("topics").values()) {
    if (!topic.system || topics.has(topic.name)) {
      push(topics, topic.name, [second, topic.recordsPerSecond ?? 0, topic.bytesPerSecond ?? 0]);
    }
  }
  for (const name of [...topics.keys()]) {
    if (rows("topics").size && !rows("topics").has(name)) topics.delete(name);
  }
}

async function load() {
  let answer;
  try {
    answer = await ask(`/api/series?seconds=${SECONDS}`);
  } catch {
    return;
  }
  const end = Math.floor(answer.at / 1000);
  const total = [new Map(), new Map(), new Map()];
  for (const [name, found] of Object.entries(answer.spus)) {
    const by = Object.fromEntries(found.map((one) => [one.name, one.values]));
    const lists = [by.receivedBytesPerSecond ?? [], by.sentBytesPerSecond ?? [], by.appendP99Us ?? []];
    const length = Math.max(...lists.map((list) => list.length));
    const made = [[], [], [], []];
    for (let back = length; back > 0; back -= 1) {
      const second = end - back + 1;
      made[0].push(second);
      lists.forEach((list, index) => {
        const value = list[list.length - back] ?? null;
        made[index + 1].push(value);
        if (value != null) {
          const old = total[index].get(second) ?? 0;
          total[index].set(second, index === 2 ? Math.max(old, value) : old + value);
        }
      });
    }
    prepend(name, made);
  }
  const times = [...total[0].keys()].sort((a, b) => a - b);
  prepend("", [times, ...total.map((values) => times.map((time) => values.get(time) ?? null))]);
}

function prepend(name, older) {
  const known = series.get(name);
  if (!known?.[0].length) {
    series.set(name, older);
    return;
  }
  const before = older[0].findIndex((second) => second >= known[0][0]);
  const until = before < 0 ? older[0].length : before;
  series.set(name, older.map((list, index) => [...list.slice(0, until), ...known[index]].slice(-SECONDS)));
}
