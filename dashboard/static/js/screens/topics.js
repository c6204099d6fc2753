// All topics, with their rates.

import {html, useMemo, useState} from "../../vendor/preact-htm.js";
import {bytes, count, rate} from "../format.js";
import {topicHistory} from "../history.js";
import {useTables} from "../live.js";
import {Command, Sparkline, State, Table} from "../ui.js";

const COLUMNS = [
  {name: "name", title: "Topic", of: (row) => row.name, show: (row) => html`<a href=${`/topics/${row.name}`}>${row.name}</a>`},
  {name: "state", title: "State", of: (row) => row.state, show: (row) => html`<${State} state=${row.state} title=${row.reason} />`},
  {name: "partitions", title: "Partitions", right: true, of: (row) => row.partitions, show: (row) => count(row.partitions)},
  {name: "replicas", title: "Replicas", right: true, of: (row) => row.replicas},
  {name: "typed", title: "Columns", right: true, of: (row) => row.columns?.length ?? -1, show: (row) => row.columns?.length ?? "–", hint: "Columns of a typed topic"},
  {name: "records", title: "≈ Records", hint: "Offsets; Runnel needs some itself, so that a new topic has one", right: true, of: (row) => row.records, show: (row) => count(row.records)},
  {name: "bytes", title: "Size", right: true, of: (row) => row.bytes, show: (row) => bytes(row.bytes), hint: "Bytes of the leaders' logs"},
  {name: "rate", title: "≈ Records/s", right: true, of: (row) => row.recordsPerSecond, show: (row) => count(row.recordsPerSecond)},
  {name: "bytesRate", title: "Bytes/s", right: true, of: (row) => row.bytesPerSecond, show: (row) => rate(row.bytesPerSecond)},
  {name: "spark", title: "Last minute", of: (row) => row.bytesPerSecond, show: (row) => html`<${Sparkline} values=${topicHistory(row.name)[2].slice(-60)} label=${`Bytes per second of ${row.name} in the last minute`} />`},
];

export function TopicsScreen() {
  const [topics] = useTables("topics", "health", "spus");
  const [filter, setFilter] = useState("");
  const [system, setSystem] = useState(false);
  const shown = useMemo(
    () => [...topics.values()].filter((row) => (system || !row.system) && row.name.includes(filter.trim())),
    [topics, filter, system],
  );
  return html`<div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Name contains <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
      <label><input type="checkbox" checked=${system} onChange=${(event) => setSystem(event.target.checked)} /> those of the system</label>
    </form>
    <${Table} label="Topics" columns=${COLUMNS} data=${shown} keyOf=${(row) => row.name}
      empty=${topics.size ? "No topic has such a name." : "There is no topic yet. Create one: runnel create topic orders"} />
    <${Command} text="runnel get topics" /></div>`;
}
