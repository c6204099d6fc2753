// Pipelines: what their runners last told of their queries.

import {html, useEffect, useMemo, useReducer} from "../../vendor/preact-htm.js";
import {ago, count} from "../format.js";
import {useTables} from "../live.js";
import {Command, State, Table} from "../ui.js";

const EVERY_MS = 1000;

const COLUMNS = [
  {name: "name", title: "Pipeline", of: (row) => row.name},
  {name: "state", title: "State", of: (row) => row.state, show: (row) => html`<${State} state=${row.state} title=${row.reason} />`},
  {name: "batch", title: "Batch", right: true, of: (row) => row.batch, show: (row) => count(row.batch), hint: "The last batch that ended, as its checkpoint numbers them"},
  {name: "rate", title: "Rows/s", right: true, of: (row) => row.rowsPerSecond, show: (row) => count(row.rowsPerSecond), hint: "Rows read, over the last ten seconds"},
  {name: "lag", title: "Lag", right: true, of: (row) => row.lag, show: (row) => count(row.lag), hint: "Records at the ends of its topics that the last batch had not read"},
  {name: "from", title: "From", of: (row) => row.from.join(", "), show: (row) => html`<${Topics} names=${row.topics} other=${row.from} />`},
  {name: "to", title: "To", wide: true, of: (row) => row.to, show: (row) => (row.toTopic ? html`<a href=${`/topics/${row.to}`}>${row.to}</a>` : html`<span title=${row.to}>${row.to}</span>`)},
  {name: "seen", title: "Last seen", of: (row) => row.lastSeen, show: (row) => html`<span title=${row.lastSeen ? `${row.lastSeen}, run ${row.run} on ${row.host}` : null}>${ago(row.lastSeen)}</span>`},
  {name: "error", title: "Last error", wide: true, of: (row) => row.lastError, show: (row) => (row.lastError ? html`<span title=${row.lastError}>${row.lastError}</span>` : html`<span class="muted">none</span>`)},
];

function Topics({names, other}) {
  if (!names.length) return html`<code>${other.join(", ")}</code>`;
  return names.map((name, index) => html`${index ? ", " : ""}<a key=${name} href=${`/topics/${name}`}>${name}</a>`);
}

export function PipelinesScreen() {
  const [pipelines] = useTables("pipelines", "health");
  const [tick, redraw] = useReducer((value) => value + 1, 0);
  useEffect(() => {
    const timer = setInterval(redraw, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const rows = useMemo(() => [...pipelines.values()], [pipelines, tick]);
  const attention = rows.filter((row) => row.reason && ["init", "failed", "unknown"].includes(row.state)).sort((a, b) => (a.name < b.name ? -1 : 1));
  return html`<div>
    <${Table} label="Pipelines" columns=${COLUMNS} data=${rows} keyOf=${(row) => row.name}
      empty="There is no pipeline yet. A manifest of kind Pipeline makes one: runnel explain pipeline" />
    ${attention.length ? html`<section aria-labelledby="attention" class="problems"><h2 id="attention">Needs attention</h2>
      <ul>${attention.map((row) => html`<li key=${row.name} class=${row.state === "failed" ? "bad" : ""}>
        <${State} state=${row.state} /> <strong>${row.name}</strong> <span class="reason">${row.reason}</span></li>`)}</ul></section>` : null}
    <${Command} text="runnel get pipelines -o wide" /></div>`;
}
