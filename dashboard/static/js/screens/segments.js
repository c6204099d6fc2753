// The segments of a topic's partitions over time, with the positions of named consumers on them.

import {html, useState} from "../../vendor/preact-htm.js";
import {bytes, clock, count} from "../format.js";
import {Problem, useAnswer} from "../ui.js";

const WIDTH = 1000;
const HEIGHT = 26;
const STATES = {in_progress: "active", completed: "completed", partially_truncated: "begins to be truncated", truncated: "truncated, in grace"};

export function SegmentMap({topic, partitions}) {
  const [first, setFirst] = useState(0);
  const {data, error} = useAnswer(`/api/topics/${encodeURIComponent(topic)}/segments?first=${first}`, 5000);
  const consumers = useAnswer("/api/consumers", 5000);
  if (error && !data) return html`<${Problem} text=${error} />`;
  if (!data) return html`<p class="muted">Asking the leaders…</p>`;
  const times = data.partitions.flatMap((one) => one.segments.flatMap((part) => [part.openedUs, part.completedUs].filter(Boolean)));
  const now = Date.now() * 1000;
  const from = times.length ? Math.min(...times) : now - 1e6;
  const to = Math.max(now, ...times);
  const x = (time) => ((time - from) / Math.max(1, to - from)) * WIDTH;
  const readers = (consumers.data?.consumers ?? []).filter((one) => one.topic === topic && !one.topicGone);
  return html`<div class="segments">
    <p class="legend"><span class="key in_progress">active</span><span class="key completed">completed</span><span class="key truncated">truncated</span>
      <span><span class="key-mark" aria-hidden="true">▼</span> position of a named consumer</span></p>
    <p class="muted axis"><span>${clock(from / 1000)}</span><span>${clock(to / 1000)}</span></p>
    <ul>${data.partitions.map((one) => html`<${Bar} key=${one.index} partition=${one} x=${x} to=${to} readers=${readers} />`)}</ul>
    ${Object.entries(data.away).map(([index, why]) => html`<${Problem} key=${index} text=${`partition ${index}: ${why}`} />`)}
    ${partitions > data.partitions.length ? html`<p>
      <button type="button" disabled=${first === 0} onClick=${() => setFirst(Math.max(0, first - 64))}>Previous</button>
      <span> partitions ${first} to ${Math.min(partitions, first + 64) - 1} of ${count(partitions)} </span>
      <button type="button" disabled=${first + 64 >= partitions} onClick=${() => setFirst(first + 64)}>Next</button></p>` : null}
  </div>`;
}

function Bar({partition, x, to, readers}) {
  const placed = partition.segments.filter((part) => part.openedUs);
  const marks = readers.flatMap((reader) => {
    const part = reader.partitions.find((one) => one.partition === partition.index);
    return part?.committed == null ? [] : [{name: reader.name, lag: part.lag, at: markAt(placed, part.committed, x, to)}];
  });
  const text = `partition ${partition.index}: ${count(partition.logStart)} to ${count(partition.end)}, `
    + `${partition.segments.length} segments, ${bytes(partition.segments.reduce((sum, part) => sum + part.bytes, 0))}`;
  return html`<li><span class="bar-name">${partition.index}</span>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${text}${marks.map((mark) => `; ${mark.name} is ${count(mark.lag)} behind`).join("")}`}>
      ${placed.map((part) => {
        const left = x(part.openedUs);
        const right = Math.max(left + 2, x(part.completedUs ?? to));
        return html`<rect key=${part.base} class=${part.state} x=${left} y="8" width=${right - left - 1} height="16">
          <title>${`offsets ${count(part.base)} to ${count(part.end)}, ${bytes(part.bytes)}, ${STATES[part.state]}\n${clock(part.openedUs / 1000)} – ${part.completedUs ? clock(part.completedUs / 1000) : "now"}`}</title></rect>`;
      })}
      ${marks.map((mark) => html`<path key=${mark.name} class="mark" d=${`M${mark.at - 5} 0 h10 l-5 9 z`}><title>${`${mark.name}: ${count(mark.lag)} behind`}</title></path>`)}
    </svg>
    <span class="bar-text">${count(partition.end - partition.logStart)} records, ${partition.segments.length} seg.${marks.length ? ` · ${marks.map((mark) => `${mark.name} −${count(mark.lag)}`).join(", ")}` : ""}</span></li>`;
}

/** Where an offset is on the axis of time: as far into its segment as into the segment's offsets. */
function markAt(segments, offset, x, to) {
  const inside = segments.find((part) => offset < part.end) ?? segments.at(-1);
  if (!inside) return x(to);
  const left = x(inside.openedUs);
  const right = x(inside.completedUs ?? to);
  const share = (offset - inside.base) / Math.max(1, inside.end - inside.base);
  return left + Math.min(1, Math.max(0, share)) * (right - left);
}
