// One topic: partitions, segments, records, what it is and how it became so.

import {html, useMemo, useState} from "../../vendor/preact-htm.js";
import {ago, bytes, clock, count, rate} from "../format.js";
import {Chart} from "../chart.js";
import {topicHistory} from "../history.js";
import {has, useTables} from "../live.js";
import {Command, Copy, Problem, State, Table, Tabs, useAnswer} from "../ui.js";
import {Records} from "./records.js";
import {SegmentMap} from "./segments.js";

const TABS = [["partitions", "Partitions"], ["segments", "Segments"], ["records", "Records"], ["spec", "Spec and history"]];

export function TopicScreen({name, about}) {
  const [topics] = useTables("topics", "health", "spus");
  const row = topics.get(name);
  if (!row) {
    return has("topics") ? html`<p>There is no topic ${name}. <a href="/topics">All topics</a></p>` : null;
  }
  const chosen = new URLSearchParams(location.search).get("tab") ?? "partitions";
  return html`<div>
    <p><${State} state=${row.state} /> ${row.reason ? html`<span class="reason">${row.reason}</span>` : null}</p>
    <dl class="facts">
      <div><dt>Partitions</dt><dd>${count(row.partitions)}</dd></div>
      <div><dt>Replicas</dt><dd>${row.replicas}</dd></div>
      <div><dt>Records</dt><dd>≈ ${count(row.records)}</dd></div>
      <div><dt>Size</dt><dd>${bytes(row.bytes)}</dd></div>
      <div><dt>Written</dt><dd>≈ ${count(row.recordsPerSecond)} records/s, ${rate(row.bytesPerSecond)}</dd></div>
      <div><dt>Kept</dt><dd>${retention(row.retention)}</dd></div>
    </dl>
    <${Tabs} tabs=${TABS} chosen=${chosen} label="Parts of the topic" />
    ${chosen === "segments" ? html`<${SegmentMap} topic=${name} partitions=${row.partitions} />`
      : chosen === "records" ? html`<${Records} topic=${row} about=${about} />`
      : chosen === "spec" ? html`<${Spec} row=${row} />`
      : html`<${Partitions} name=${name} />`}
    <${Command} text=${`runnel describe topic ${name}`} /></div>`;
}

function retention(kept) {
  const parts = Object.entries(kept ?? {}).filter(([, value]) => value != null);
  return parts.length ? parts.map(([name, value]) => `${name} ${value}`).join(", ") : "without limit";
}

const COLUMNS = [
  {name: "index", title: "Partition", right: true, of: (row) => row.index ?? row.name},
  {name: "state", title: "State", of: (row) => row.state, show: (row) => html`<${State} state=${row.state} title=${row.reason} />`},
  {name: "leader", title: "Leader", right: true, of: (row) => row.leader, show: (row) => row.leader ?? "–"},
  {name: "live", title: "Live / replicas", of: (row) => row.live.length - row.replicas.length, hint: "SPUs of the live replica set, of those assigned",
    show: (row) => row.replicas.map((spu) => html`<span key=${spu} class=${row.live.includes(spu) ? "replica" : "replica away"} title=${row.live.includes(spu) ? "live" : "not live"}>${row.live.includes(spu) ? spu : html`<s>${spu}</s>`}</span>`)},
  {name: "start", title: "Start", right: true, of: (row) => row.start, show: (row) => count(row.start)},
  {name: "committed", title: "Committed", right: true, of: (row) => row.committed, show: (row) => count(row.committed), hint: "The offset after the last committed record"},
  {name: "lag", title: "Follower lag", right: true, of: lag, show: (row) => count(lag(row)), hint: "Records that the replica furthest behind lacks"},
  {name: "bytes", title: "Size", right: true, of: (row) => row.bytes, show: (row) => bytes(row.bytes)},
  {name: "reason", title: "Reason", of: (row) => row.reason, wide: true},
];

/** How far the replica is behind that lacks most. */
function lag(row) {
  const ends = Object.values(row.ends ?? {});
  return row.end == null || !ends.length ? null : Math.max(0, row.end - Math.min(...ends));
}

function Partitions({name}) {
  const [partitions] = useTables(`topic:${name}`);
  const data = useMemo(() => [...partitions.values()], [partitions]);
  const [time, records, written] = topicHistory(name);
  return html`<div>
    <section class="charts">
      <${Chart} title="Records committed per second" data=${[time, records]} height=${140} series=${[{label: "records/s", format: count, color: "--accent"}]} />
      <${Chart} title="Bytes written per second" data=${[time, written]} height=${140} series=${[{label: "bytes/s", format: rate, color: "--second"}]} />
    </section>
    <${Table} label="Partitions" columns=${COLUMNS} data=${data} keyOf=${(row) => row.name} empty="No partition yet." /></div>`;
}

function Spec({row}) {
  const {data, error} = useAnswer(`/api/objects/topics/${row.name}`);
  const [all, setAll] = useState(false);
  if (error) return html`<${Problem} text=${error} />`;
  if (!data) return html`<p class="muted">Loading…</p>`;
  const entries = all ? data.history : data.history.slice(0, 10);
  return html`<div>
    ${row.columns ? html`<section aria-labelledby="columns"><h2 id="columns">Columns</h2>
      <div class="table" tabindex="0" role="region" aria-label="Columns"><table><thead><tr><th scope="col">Name</th><th scope="col">Type</th><th scope="col">Nullable</th></tr></thead><tbody>
      ${row.columns.map((column) => html`<tr key=${column.name}><td>${column.name}${column.name === row.keyColumn ? " (key)" : ""}</td><td>${typeof column.type === "string" ? column.type : JSON.stringify(column.type)}</td><td>${column.nullable ? "yes" : "no"}</td></tr>`)}
      </tbody></table></div></section>` : null}
    <section aria-labelledby="spec"><h2 id="spec">Manifest <${Copy} text=${data.yaml} what="the manifest" /></h2><pre tabindex="0">${data.yaml}</pre></section>
    <section aria-labelledby="history"><h2 id="history">History</h2>
    <ol class="history">${entries.map((entry) => html`<li key=${entry.revision}>
      <span title=${entry.at}>${clock(entry.at)}, ${ago(entry.at)}</span> by <strong>${entry.by ?? "–"}</strong>
      ${entry.resolution ? html` <${State} state=${entry.resolution} />` : null}
      ${entry.cause ? html` <a href=${`/trace/${encodeURIComponent(entry.cause)}`}>why</a>` : null}
      <div class="muted">${entry.changed.join(", ")}</div>${entry.reason ? html`<div class="reason">${entry.reason}</div>` : null}</li>`)}</ol>
    ${data.history.length > 10 && !all ? html`<button type="button" onClick=${() => setAll(true)}>Show all ${data.history.length}</button>` : null}
    ${data.complete ? null : html`<p class="muted">The store has forgotten older writes.</p>`}</section></div>`;
}
