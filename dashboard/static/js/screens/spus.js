// SPUs: what each does, and which of the others it reaches.

import {html, useMemo, useState} from "../../vendor/preact-htm.js";
import {bytes, clock, count, microseconds, percent, rate} from "../format.js";
import {has, useTables} from "../live.js";
import {Command, Problem, State, Table, useAnswer} from "../ui.js";
import {Disk, Rates} from "./cluster.js";

const COLUMNS = [
  {name: "id", title: "Id", right: true, of: (row) => row.id},
  {name: "name", title: "SPU", of: (row) => row.name, show: (row) => html`<a href=${`/spus/${row.name}`}>${row.name}</a>`},
  {name: "state", title: "State", of: (row) => row.state, show: (row) => html`<${State} state=${row.state} title=${row.reason} />`},
  {name: "place", title: "Rack", of: (row) => row.place, show: (row) => row.place || "–"},
  {name: "leads", title: "Leads", right: true, of: (row) => row.leads, show: (row) => count(row.leads)},
  {name: "holds", title: "Holds", right: true, of: (row) => row.holds, show: (row) => count(row.holds)},
  {name: "in", title: "In", right: true, of: (row) => row.in, show: (row) => rate(row.in)},
  {name: "out", title: "Out", right: true, of: (row) => row.out, show: (row) => rate(row.out)},
  {name: "clients", title: "Clients", right: true, of: (row) => row.clients, show: (row) => count(row.clients)},
  {name: "append", title: "Append p99", right: true, of: (row) => row.appendP99Us, show: (row) => microseconds(row.appendP99Us)},
  {name: "fsync", title: "Fsync p99", right: true, of: (row) => row.fsyncP99Us, show: (row) => microseconds(row.fsyncP99Us)},
  {name: "disk", title: "Disk used", right: true, of: (row) => row.diskUsed, show: (row) => percent(row.diskUsed)},
  {name: "peers", title: "Cannot reach", of: (row) => row.unreachable?.length ?? 0, show: (row) => row.unreachable?.map((peer) => peer.spu).join(", ") || "–"},
];

export function SpusScreen() {
  const [spus] = useTables("spus", "health");
  const data = useMemo(() => [...spus.values()], [spus]);
  return html`<div><${Table} label="SPUs" columns=${COLUMNS} data=${data} keyOf=${(row) => row.name} empty="There is no SPU yet." />
    <${Reachability} spus=${data} />
    <${Command} text="runnel get spus" /></div>`;
}

/** Who reaches whom, as SPUs say of those that they replicate with. */
function Reachability({spus}) {
  const sorted = [...spus].sort((a, b) => a.id - b.id);
  if (sorted.length < 2 || sorted.length > 30) return null;
  return html`<section aria-labelledby="reach"><h2 id="reach">Who reaches whom</h2>
    <div class="table" tabindex="0" role="region" aria-label="Who reaches whom"><table class="matrix"><thead><tr><th scope="col">from ╲ to</th>${sorted.map((to) => html`<th scope="col" key=${to.id} class="right">${to.id}</th>`)}</tr></thead>
    <tbody>${sorted.map((from) => html`<tr key=${from.id}><th scope="row">${from.id} ${from.name}</th>${sorted.map((to) => {
      const missing = from.unreachable?.find((peer) => peer.spu === to.id);
      const text = from.id === to.id ? "" : from.unreachable == null || from.state === "offline" ? "?" : missing ? "✖" : "✓";
      return html`<td key=${to.id} class=${`right ${missing ? "bad" : ""}`} title=${missing ? `${missing.host}:${missing.port}: ${missing.reason}` : undefined}>${text}</td>`;
    })}</tr>`)}</tbody></table></div>
    <p class="muted">✓: no failed connection is known. ✖: it has to connect, and cannot. ?: the SPU is away.</p></section>`;
}

export function SpuScreen({name}) {
  const [spus] = useTables("spus", "health");
  const [level, setLevel] = useState("info");
  const logs = useAnswer(`/api/logs/${encodeURIComponent(name)}?level=${level}`, 5000);
  const row = spus.get(name);
  if (!row) return has("spus") ? html`<p>There is no SPU ${name}. <a href="/spus">All SPUs</a></p>` : null;
  return html`<div>
    <p><${State} state=${row.state} /> ${row.reason ? html`<span class="reason">${row.reason}</span>` : null}</p>
    <dl class="facts">
      <div><dt>Id</dt><dd>${row.id}</dd></div>
      <div><dt>Rack</dt><dd>${row.place || "–"}</dd></div>
      <div><dt>Type</dt><dd>${row.type}${row.group ? `, of ${row.group}` : ""}</dd></div>
      <div><dt>Clients reach it at</dt><dd>${row.public}</dd></div>
      <div><dt>SPUs reach it at</dt><dd>${row.private}</dd></div>
      <div><dt>Partitions</dt><dd>leads ${count(row.leads)}, holds ${count(row.holds)}</dd></div>
      <div><dt>Clients now</dt><dd>${count(row.clients)}</dd></div>
      <div><dt>Requests</dt><dd>${count(row.requests)}/s, ${count(row.errors)} errors since its start</dd></div>
      <div><dt>Append p99</dt><dd>${microseconds(row.appendP99Us)}</dd></div>
      <div><dt>Fsync p99</dt><dd>${microseconds(row.fsyncP99Us)}</dd></div>
      <div><dt>Free</dt><dd>${bytes(row.freeBytes)} of ${bytes(row.diskBytes)}</dd></div>
    </dl>
    <${Disk} spu=${row} />
    ${row.unreachable?.map((peer) => html`<${Problem} key=${peer.spu} text=${`It cannot reach SPU ${peer.spu} at ${peer.host}:${peer.port}: ${peer.reason}`} />`)}
    <${Rates} name=${name} />
    <section aria-labelledby="log"><h2 id="log">Last log lines</h2>
      <label>Level <select value=${level} onChange=${(event) => setLevel(event.target.value)}>${["debug", "info", "warning", "error"].map((one) => html`<option key=${one} value=${one} selected=${one === level}>${one}</option>`)}</select></label>
      <${Problem} text=${logs.error ?? Object.values(logs.data?.away ?? {})[0]} />
      <${LogLines} lines=${logs.data?.lines ?? []} />
    </section>
    <${Command} text=${`runnel cluster logs ${name} --since 1h`} /></div>`;
}

const NAMED = ["timestamp", "level", "event", "process", "module", "cause"];

export function LogLines({lines}) {
  if (!lines.length) return html`<p class="muted">No such line.</p>`;
  return html`<div class="table" tabindex="0" role="region" aria-label="Log lines"><table class="log"><tbody>${[...lines].reverse().map((line, index) => html`<tr key=${`${line.timestamp}${index}`} class=${line.level}>
    <td title=${line.timestamp}>${clock(line.timestamp)}</td><td>${line.level}</td>
    <td class="wide">${line.event} <span class="muted">${Object.entries(line).filter(([key]) => !NAMED.includes(key)).map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ")}</span></td>
    <td>${line.cause && line.cause !== "-" ? html`<a href=${`/trace/${encodeURIComponent(line.cause)}`}>${line.cause}</a>` : ""}</td></tr>`)}</tbody></table></div>`;
}
