// The last changes of all objects: what, when, by whom, and what caused them.

import {html, useMemo, useState} from "../../vendor/preact-htm.js";
import {clock} from "../format.js";
import {Command, Problem, State, Table, useAnswer} from "../ui.js";

const EVERY_MS = 2000;
const PATHS = {Topic: (name) => `/topics/${name}`, Spu: (name) => `/spus/${name}`, Partition: (name) => `/topics/${name.replace(/-\d+$/, "")}`};

const COLUMNS = [
  {name: "revision", title: "Time", of: (row) => Number(row.revision), show: (row) => html`<span title=${row.at}>${clock(row.at)}</span>`},
  {name: "object", title: "Object", of: (row) => `${row.kind}/${row.name}`.toLowerCase(), show: (row) => {
    const path = PATHS[row.kind];
    const text = `${row.kind.toLowerCase()}/${row.name}`;
    return path ? html`<a href=${path(row.name)}>${text}</a>` : text;
  }},
  {name: "change", title: "Change", of: (row) => row.change},
  {name: "resolution", title: "State", of: (row) => row.resolution ?? "", show: (row) => (row.resolution ? html`<${State} state=${row.resolution} />` : "")},
  {name: "by", title: "By", of: (row) => row.by ?? ""},
  {name: "cause", title: "Cause", of: (row) => row.cause, show: (row) => (row.cause === "-" ? "" : html`<a href=${`/trace/${encodeURIComponent(row.cause)}`}>${row.cause}</a>`)},
  {name: "reason", title: "Reason, or what changed", of: (row) => row.reason ?? row.changed.join(", "), wide: true},
];

export function EventsScreen() {
  const {data, error} = useAnswer("/api/events", EVERY_MS);
  const [filter, setFilter] = useState("");
  const shown = useMemo(() => {
    const text = filter.trim().toLowerCase();
    return (data?.events ?? []).filter((row) => !text || `${row.kind}/${row.name} ${row.by} ${row.cause} ${row.reason} ${row.change}`.toLowerCase().includes(text));
  }, [data, filter]);
  return html`<div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Contains <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)} placeholder="topic/orders, a writer, a cause" /></label>
    </form>
    <${Problem} text=${error} />
    ${data ? html`<${Table} label="Events" columns=${COLUMNS} data=${shown} keyOf=${(row) => `${row.kind}/${row.name}/${row.revision}`} sortBy="revision" descending empty="No such event." />` : html`<p class="muted">Loading…</p>`}
    <${Command} text="runnel get events" /></div>`;
}
