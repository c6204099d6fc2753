// Named consumers: how far each is behind, and whether it moves.

import {html, useEffect, useMemo, useReducer} from "../../vendor/preact-htm.js";
import {ago, count, plural} from "../format.js";
import {Command, Problem, Sparkline, State, Table, useAnswer} from "../ui.js";

const EVERY_MS = 3000;
const KEPT = 60;
/** Lags as they were seen while the page is open. */
const lags = new Map();

const keyOf = (row) => `${row.name}/${row.topic}`;

const COLUMNS = [
  {name: "name", title: "Consumer", of: (row) => row.name, show: (row) => html`<a href=${`/consumers/${encodeURIComponent(row.name)}/${row.topic}`}>${row.name}</a>`},
  {name: "topic", title: "Topic", of: (row) => row.topic, show: (row) => (row.topicGone ? html`${row.topic} <span class="muted">deleted</span>` : html`<a href=${`/topics/${row.topic}`}>${row.topic}</a>`)},
  {name: "open", title: "Open", of: (row) => row.open, show: (row) => (row.open ? "yes" : "no"), hint: "Opened, and not closed since; its process may have ended without closing it"},
  {name: "lag", title: "Lag", right: true, of: (row) => row.lag, show: (row) => count(row.lag), hint: "Records between the committed positions and the ends of the partitions"},
  {name: "spark", title: "Lag while you look", of: (row) => row.lag, show: (row) => html`<${Sparkline} values=${lags.get(keyOf(row))} label=${`Lag of ${row.name} in ${row.topic} while this page is open`} />`},
  {name: "committed", title: "Last commit", of: (row) => row.committedAt, show: (row) => html`<span title=${row.committedAt}>${ago(row.committedAt)}</span>`},
  {name: "by", title: "Client", of: (row) => row.by},
];

export function ConsumersScreen({name, topic, about}) {
  const {data, error} = useAnswer("/api/consumers", EVERY_MS);
  const [, redraw] = useReducer((value) => value + 1, 0);
  useEffect(() => {
    for (const row of data?.consumers ?? []) {
      const seen = lags.get(keyOf(row)) ?? [];
      if (row.lag != null) lags.set(keyOf(row), [...seen, row.lag].slice(-KEPT));
    }
    for (const key of [...lags.keys()]) if (data && !data.consumers.some((row) => keyOf(row) === key)) lags.delete(key);
    redraw();
  }, [data]);
  const rows = useMemo(() => [...(data?.consumers ?? [])], [data]);
  if (error && !data) return html`<${Problem} text=${error} />`;
  if (!data) return html`<p class="muted">Asking for positions…</p>`;
  if (name) return html`<${Detail} row=${rows.find((row) => row.name === name && row.topic === topic)} name=${name} topic=${topic} sc=${about?.sc} />`;
  return html`<div><${Problem} text=${error} />
    <${Table} label="Named consumers" columns=${COLUMNS} data=${rows} keyOf=${keyOf} sortBy="lag" descending
      empty="No named consumer yet. A consumer with a name keeps its position: runnel consume orders --name billing" />
    <${Command} text="runnel get consumers" /></div>`;
}

const PARTITIONS = [
  {name: "partition", title: "Partition", right: true, of: (row) => row.partition},
  {name: "earliest", title: "Start of the log", right: true, of: (row) => row.earliest, show: (row) => count(row.earliest)},
  {name: "committed", title: "Committed", right: true, of: (row) => row.committed, show: (row) => count(row.committed)},
  {name: "end", title: "End of the log", right: true, of: (row) => row.end, show: (row) => count(row.end)},
  {name: "lag", title: "Lag", right: true, of: (row) => row.lag, show: (row) => count(row.lag)},
  {name: "at", title: "Last commit", of: (row) => row.committedAt, show: (row) => html`<span title=${row.committedAt}>${ago(row.committedAt)}</span>`},
];

function Detail({row, name, topic, sc}) {
  if (!row) return html`<p>There is no position of ${name} in ${topic}. <a href="/consumers">All consumers</a></p>`;
  return html`<div>
    <p>${row.open ? "Open" : "Closed"} since ${ago(row.since)}, by ${row.by}. ${row.lag == null ? "Its lag is not known." : html`<strong>${plural(row.lag, "record")} behind.</strong>`}
      ${" "}Topic <a href=${`/topics/${row.topic}?tab=segments`}>${row.topic}</a> shows where on its segments.</p>
    <${Table} label=${`Positions of ${name} in ${topic}`} columns=${PARTITIONS} data=${row.partitions} keyOf=${(part) => part.partition} />
    <${Command} text=${`runnel consumer reset ${name} --topic ${topic} --to-earliest${sc ? ` --sc ${sc}` : ""}`} label="To read everything again" /></div>`;
}
