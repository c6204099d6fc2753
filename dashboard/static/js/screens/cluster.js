// The cluster at a glance: what needs a person first, SPUs by their racks, rates.

import {html} from "../../vendor/preact-htm.js";
import {Chart} from "../chart.js";
import {bytes, count, microseconds, percent, plural, rate} from "../format.js";
import {spuHistory} from "../history.js";
import {useTables} from "../live.js";
import {Command, Sparkline, State, tone} from "../ui.js";

const LINKS = {Partition: (name) => partitionPath(name), Topic: (name) => `/topics/${name}`, Spu: (name) => `/spus/${name}`, Pipeline: () => "/pipelines"};
/** A disk that is fuller than this needs room. */
const DISK_MARK = 0.85;

function partitionPath(name) {
  return `/topics/${name.replace(/-\d+$/, "")}`;
}

export function ClusterScreen() {
  const [health, problems, spus] = useTables("health", "problems", "spus", "topics");
  const row = health.get("cluster");
  if (!row) return null;
  return html`<div>
    <${Problems} problems=${[...problems.values()]} total=${row.problems} />
    <section aria-labelledby="spus"><h2 id="spus">SPUs</h2>${racks([...spus.values()]).map(([place, members]) => html`
      <div key=${place} class="rack">${place ? html`<h3>${place}</h3>` : null}
        <ul class="tiles">${members.map((spu) => html`<${Tile} key=${spu.name} spu=${spu} />`)}</ul>
      </div>`)}
      ${spus.size ? null : html`<p class="muted">There is no SPU yet. <a href="/events">Events</a> say what the SC does.</p>`}
    </section>
    <section aria-labelledby="rates"><h2 id="rates">The last quarter of an hour</h2>
      <${Rates} name="" />
    </section>
    <${Command} text="runnel top" /></div>`;
}

/** Bytes of clients, and the slowest appends, of one SPU or of the cluster (""). */
export function Rates({name}) {
  const [time, received, sent, p99] = spuHistory(name);
  return html`<div class="charts">
    <${Chart} title="Bytes of clients" data=${[time, received, sent]} series=${[
      {label: "in", format: rate, color: "--accent"}, {label: "out", format: rate, color: "--second"}]} />
    <${Chart} title="Appends, 99th percentile" data=${[time, p99]} series=${[
      {label: name ? "p99" : "slowest SPU", format: microseconds, color: "--accent"}]} /></div>`;
}

function Problems({problems, total}) {
  if (!total) return null;
  problems.sort((a, b) => a.order - b.order);
  return html`<section aria-labelledby="problems" class="problems"><h2 id="problems">Needs attention</h2>
    <ul>${problems.slice(0, 20).map((one) => html`<li key=${`${one.kind}/${one.name}`} class=${tone(one.severity)}>
      <${State} state=${one.state} /> <a href=${(LINKS[one.kind] ?? (() => "/events"))(one.name)}>${one.kind.toLowerCase()}/${one.name}</a>
      <span class="reason">${one.reason}</span></li>`)}</ul>
    ${total > 20 ? html`<p class="muted">… and ${plural(total - 20, "other")}: <code>runnel top --once</code> lists all.</p>` : null}
  </section>`;
}

function racks(spus) {
  const found = new Map();
  for (const spu of spus.sort((a, b) => a.id - b.id)) {
    if (!found.has(spu.place)) found.set(spu.place, []);
    found.get(spu.place).push(spu);
  }
  return [...found.entries()].sort(([a], [b]) => (a < b ? -1 : 1));
}

function Tile({spu}) {
  const history = spuHistory(spu.name);
  const both = history[1].slice(-60).map((value, index) => (value ?? 0) + (history[2].slice(-60)[index] ?? 0));
  return html`<li class=${`tile ${tone(spu.state)}`}>
    <div class="tile-head"><a href=${`/spus/${spu.name}`}>${spu.name}</a> <${State} state=${spu.state} /></div>
    <div class="tile-row"><span>leads ${count(spu.leads)}, holds ${count(spu.holds)}</span></div>
    <div class="tile-row"><span>in ${rate(spu.in)}</span><span>out ${rate(spu.out)}</span></div>
    <${Sparkline} values=${both} label=${`Bytes of clients of ${spu.name} in the last minute`} />
    <${Disk} spu=${spu} />
    ${spu.unreachable?.length ? html`<div class="reason">cannot reach SPU ${spu.unreachable.map((peer) => peer.spu).join(", ")}</div>` : null}
    ${spu.reason ? html`<div class="reason">${spu.reason}</div>` : null}
  </li>`;
}

/** How full a disk is. */
export function Disk({spu}) {
  if (spu.diskUsed == null) return html`<div class="disk"><span class="muted">disk –</span></div>`;
  const full = spu.diskUsed >= DISK_MARK;
  return html`<div class="disk"><div class="bar" role="img" aria-label=${`disk ${percent(spu.diskUsed)} used`}>
      <div class=${full ? "used full" : "used"} style=${`width:${Math.round(spu.diskUsed * 100)}%`}></div><div class="mark"></div></div>
    <span>${percent(spu.diskUsed)} used${full ? ", nearly full" : ""} · logs ${bytes(spu.logBytes)}</span></div>`;
}
