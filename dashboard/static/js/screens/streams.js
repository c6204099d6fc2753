// Streams, and the key space of one over its epochs.

import {html, useMemo, useRef, useState} from "../../vendor/preact-htm.js";
import {bytes, clock, count, percent, plural} from "../format.js";
import {has, useTables} from "../live.js";
import {Command, Problem, State, Table, useAnswer} from "../ui.js";

const EVERY_MS = 5000;
/** A segment that takes a smaller share of the keys has no room for its number. */
const LEAST_SHARE = 0.03;

const COLUMNS = [
  {name: "name", title: "Stream", of: (row) => row.name, show: (row) => html`<a href=${`/streams/${row.name}`}>${row.name}</a>`},
  {name: "state", title: "State", of: (row) => row.state, show: (row) => html`<${State} state=${row.state} title=${row.reason} />`},
  {name: "segments", title: "Segments", right: true, of: (row) => row.segments, show: (row) => count(row.segments), hint: "Those that writers use now"},
  {name: "epoch", title: "Epoch", right: true, of: (row) => row.epoch, show: (row) => count(row.epoch), hint: "How often its keys were divided anew"},
  {name: "queued", title: "Waiting", right: true, of: (row) => row.queued ?? 0, show: (row) => count(row.queued ?? 0), hint: "Requests that wait for their turn"},
  {name: "replicas", title: "Replicas", right: true, of: (row) => row.replicas},
  {name: "tags", title: "Tags", of: (row) => row.tags.join(", ")},
  {name: "reason", title: "Reason", wide: true, of: (row) => row.reason},
];

export function StreamsScreen() {
  const [streams] = useTables("streams", "health");
  const rows = useMemo(() => [...streams.values()], [streams]);
  return html`<div>
    <${Table} label="Streams" columns=${COLUMNS} data=${rows} keyOf=${(row) => row.name}
      empty="There is no stream yet. Create one: runnel create stream orders" />
    <${Command} text="runnel get streams" /></div>`;
}

export function StreamScreen({name}) {
  const [streams, partitions] = useTables("streams", `topic:${name}`, "health");
  const row = streams.get(name);
  if (!row) {
    return has("streams") ? html`<p>There is no stream ${name}. <a href="/streams">All streams</a></p>` : null;
  }
  return html`<div>
    <p><${State} state=${row.state} /> ${row.reason ? html`<span class="reason">${row.reason}</span>` : null}</p>
    <dl class="facts">
      <div><dt>Segments</dt><dd>${count(row.segments)}</dd></div>
      <div><dt>Epoch</dt><dd>${count(row.epoch)}</dd></div>
      <div><dt>Replicas</dt><dd>${row.replicas}</dd></div>
      <div><dt>Tags</dt><dd>${row.tags.join(", ") || "none"}</dd></div>
    </dl>
    <${KeySpace} key=${name} name=${name} row=${row} partitions=${partitions} />
    <${Command} text=${`runnel describe stream ${name}`} /></div>`;
}

function KeySpace({name, row, partitions}) {
  const [last, setLast] = useState(null);
  // Asked again when the stream changes, and now and then.
  const seen = `${row.epoch}-${row.state}-${partitions.size}`;
  const {data, error} = useAnswer(`/api/streams/${name}/epochs?seen=${encodeURIComponent(seen)}${last == null ? "" : `&last=${last}`}`, EVERY_MS);
  // What was shown stays until the next answer is there.
  const kept = useRef(null);
  if (data) kept.current = data;
  const shown = kept.current;
  if (error && !shown) return html`<${Problem} text=${error} />`;
  if (!shown) return html`<p class="muted">Asking the SC…</p>`;
  const first = shown.epochs[0].epoch;
  const end = shown.epochs.at(-1).epoch;
  return html`<section aria-labelledby="keys"><h2 id="keys">Key space over epochs</h2>
    <p class="legend"><span class="key in_progress">current</span><span class="key completed">replaced</span><span class="key truncated">truncated</span></p>
    <div class="keyspace">
      <p class="muted axis"><span>0</span><span>keys</span><span>1</span></p>
      <ol>${shown.epochs.map((one) => html`<${Epoch} key=${one.epoch} epoch=${one} />`)}</ol>
    </div>
    ${first > 0 || end < shown.current ? html`<p>
      <button type="button" disabled=${first === 0} onClick=${() => setLast(first - 1)}>Older</button>
      <span> epochs ${count(first)} to ${count(end)} of ${count(shown.current)} </span>
      <button type="button" disabled=${end >= shown.current} onClick=${() => setLast(null)}>Newest</button></p>` : null}
    <${Segments} epoch=${end === shown.current ? shown.epochs.at(-1) : null} partitions=${partitions} />
  </section>`;
}

function Epoch({epoch}) {
  const some = epoch.segments.slice(0, 8).map((one) => `${one.id} (${one.state}) from ${share(one.low)} to ${share(one.high)}`).join(", ");
  const more = epoch.segments.length > 8 ? ` and ${epoch.segments.length - 8} more` : "";
  return html`<li><span class="bar-name">${epoch.epoch}</span>
    <div class="keys" role="img" aria-label=${`epoch ${epoch.epoch}: ${some}${more}`}>${epoch.segments.map((one) => html`<span key=${one.id}
      class=${`segment ${one.state}`} style=${`left:${one.low * 100}%;width:${(one.high - one.low) * 100}%`}
      title=${`segment ${one.id}, ${one.state}\nkeys ${share(one.low)} to ${share(one.high)}`}>${one.high - one.low >= LEAST_SHARE ? one.id : ""}</span>`)}</div>
    <span class="bar-text">${plural(epoch.segments.length, "segment")}, ${clock(epoch.at)}</span></li>`;
}

const share = (place) => String(Number(place.toPrecision(4)));

const SEGMENT_COLUMNS = [
  {name: "keys", title: "Segment", of: (row) => row.low, show: (row) => row.id},
  {name: "low", title: "Keys from", right: true, of: (row) => row.low, show: (row) => share(row.low)},
  {name: "high", title: "To", right: true, of: (row) => row.high, show: (row) => share(row.high)},
  {name: "share", title: "Share", right: true, of: (row) => row.high - row.low, show: (row) => percent(row.high - row.low)},
  {name: "state", title: "State", of: (row) => row.partition?.state ?? "", show: (row) => (row.partition ? html`<${State} state=${row.partition.state} title=${row.partition.reason} />` : "–")},
  {name: "leader", title: "Leader", right: true, of: (row) => row.partition?.leader ?? null, show: (row) => row.partition?.leader ?? "–"},
  {name: "committed", title: "Committed", right: true, of: (row) => row.partition?.committed ?? null, show: (row) => count(row.partition?.committed), hint: "The offset after the last committed record"},
  {name: "bytes", title: "Size", right: true, of: (row) => row.partition?.bytes ?? null, show: (row) => bytes(row.partition?.bytes)},
];

function Segments({epoch, partitions}) {
  const rows = useMemo(() => {
    const byIndex = new Map([...partitions.values()].map((one) => [one.index, one]));
    return (epoch?.segments ?? []).map((one) => ({...one, partition: byIndex.get(Number(one.id.split(".")[1]))}));
  }, [epoch, partitions]);
  if (!epoch) return null;
  return html`<h2>Current segments</h2>
    <${Table} label="Current segments" columns=${SEGMENT_COLUMNS} data=${rows} keyOf=${(row) => row.id} />`;
}
