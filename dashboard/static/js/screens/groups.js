// Reader groups: who reads what, and how far behind each group is.

import {html, useMemo} from "../../vendor/preact-htm.js";
import {ago, bytes, count, plural} from "../format.js";
import {Command, Problem, Table, useAnswer} from "../ui.js";

const EVERY_MS = 2000;

const linkOf = (source) => (source.includes("/") ? `/streams/${source}` : `/topics/${source}`);
const free = (row) => row.segments.filter((one) => one.reader == null).length;

const COLUMNS = [
  {name: "name", title: "Group", of: (row) => row.name, show: (row) => html`<a href=${`/groups/${encodeURIComponent(row.name)}`}>${row.name}</a>`},
  {name: "sources", title: "Reads", of: (row) => row.sources.join(", "), show: (row) => row.sources.map((one, at) => html`${at ? ", " : ""}<a href=${linkOf(one)}>${one}</a>`)},
  {name: "readers", title: "Readers", right: true, of: (row) => row.readers.length},
  {name: "segments", title: "Segments", right: true, of: (row) => row.segments.length},
  {name: "free", title: "Free", right: true, of: free, hint: "Segments that nobody reads now"},
  {name: "lag", title: "Lag", right: true, of: (row) => row.lag, show: (row) => count(row.lag), hint: "Records between the committed positions and the ends of the segments"},
  {name: "unread", title: "Unread", right: true, of: (row) => row.unreadBytes, show: (row) => bytes(row.unreadBytes), hint: "About how many bytes of logs that is"},
  {name: "checkpoint", title: "Last checkpoint", of: (row) => row.checkpointAt, show: (row) => html`<span title=${row.checkpointAt}>${row.checkpointAt ? ago(row.checkpointAt) : "none"}</span>`},
];

export function GroupsScreen({name}) {
  const {data, error} = useAnswer("/api/groups", EVERY_MS);
  const rows = useMemo(() => [...(data?.groups ?? [])], [data]);
  if (error && !data) return html`<${Problem} text=${error} />`;
  if (!data) return html`<p class="muted">Asking for groups…</p>`;
  if (name) return html`<${Detail} row=${rows.find((row) => row.name === name)} name=${name} />`;
  return html`<div><${Problem} text=${error} />
    <${Table} label="Reader groups" columns=${COLUMNS} data=${rows} keyOf=${(row) => row.name} sortBy="lag" descending
      empty="No reader group yet. Readers of one share the records of a topic: runnel consume orders --group billing" />
    <${Command} text="runnel group list" /></div>`;
}

const READERS = [
  {name: "name", title: "Reader", of: (row) => row.name},
  {name: "segments", title: "Segments", right: true, of: (row) => row.segments},
  {name: "since", title: "Joined", of: (row) => row.since, show: (row) => html`<span title=${row.since}>${ago(row.since)}</span>`},
  {name: "by", title: "Process", of: (row) => row.by, wide: true},
];

const SEGMENTS = [
  {name: "source", title: "Source", of: (row) => row.source, show: (row) => html`<a href=${linkOf(row.source)}>${row.source}</a>`},
  {name: "segment", title: "Segment", of: (row) => row.segment},
  {name: "reader", title: "Reader", of: (row) => row.reader ?? "", show: (row) => row.reader ?? html`<span class="muted">free</span>`},
  {name: "position", title: "Position", right: true, of: (row) => row.position, show: (row) => count(row.position)},
  {name: "end", title: "End", right: true, of: (row) => row.end, show: (row) => count(row.end)},
  {name: "lag", title: "Lag", right: true, of: (row) => row.lag, show: (row) => count(row.lag)},
  {name: "unread", title: "Unread", right: true, of: (row) => row.unreadBytes, show: (row) => bytes(row.unreadBytes), hint: "About how many bytes of the log that is"},
];

function Detail({row, name}) {
  if (!row) return html`<p>There is no reader group ${name}. <a href="/groups">All groups</a></p>`;
  return html`<div>
    <dl class="facts">
      <div><dt>Lag</dt><dd>${row.lag == null ? "not known" : `${plural(row.lag, "record")} at most, about ${bytes(row.unreadBytes)}`}</dd></div>
      <div><dt>Readers</dt><dd>${row.readers.length}</dd></div>
      <div><dt>Lease</dt><dd>${row.leaseS} s</dd></div>
      <div><dt>Last checkpoint</dt><dd>${row.checkpointAt ? ago(row.checkpointAt) : "none"}</dd></div>
    </dl>
    ${row.outstanding.map((waiting) => html`<p>A checkpoint waits for ${waiting.join(", ")}.</p>`)}
    <h2>Readers</h2>
    <${Table} label="Readers" columns=${READERS} data=${row.readers} keyOf=${(one) => one.name} empty="Nobody reads" />
    <h2>Segments</h2>
    <${Table} label="Segments" columns=${SEGMENTS} data=${row.segments} keyOf=${(one) => `${one.source} ${one.segment}`} sortBy="lag" descending empty="All is read" />
    ${row.waiting.length ? html`<p class="muted">${plural(row.waiting.length, "segment")} waiting for earlier ones: ${row.waiting.slice(0, 8).join(", ")}</p>` : null}
    <${Command} text=${`runnel group describe ${name}`} /></div>`;
}
