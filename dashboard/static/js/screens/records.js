// Records of a topic: the last ones, those from a place on, or those that come.

import {html, useEffect, useRef, useState} from "../../vendor/preact-htm.js";
import {clock, count} from "../format.js";
import {ask, Copy, Problem} from "../ui.js";

const MOST_SHOWN = 500;
const PLACES = {last: "the last", offset: "from the offset", since: "from the time", transaction: "from the transaction id"};

export function Records({topic, about}) {
  const [form, setForm] = useState({place: "last", value: "", partition: "", key: "", limit: "50", look: "text"});
  const [page, setPage] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const [live, setLive] = useState(false);
  const stop = useRef(null);
  useEffect(() => () => stop.current?.(), []);
  useEffect(() => {
    if (about?.records !== false) read();
  }, []);
  if (about && !about.records) return html`<p>This dashboard shows no records: its configuration says so.</p>`;

  async function read() {
    stop.current?.();
    const abort = new AbortController();
    stop.current = () => abort.abort();
    setBusy(true);
    setError(null);
    try {
      setPage(await ask(`/api/topics/${encodeURIComponent(topic.name)}/records?${query(form)}`, abort.signal));
    } catch (failure) {
      if (!abort.signal.aborted) setError(failure.message);
    }
    setBusy(false);
  }

  function tail() {
    stop.current?.();
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const partition = form.partition === "" ? "" : `?partition=${form.partition}`;
    const socket = new WebSocket(`${scheme}://${location.host}/api/topics/${encodeURIComponent(topic.name)}/tail${partition}`);
    setPage({columns: topic.columns, records: [], live: true, leftOut: 0});
    setError(null);
    setLive(true);
    socket.onmessage = (event) => {
      const frame = JSON.parse(event.data);
      if (frame.error) return setError(frame.error);
      const wanted = form.key === "" ? frame.records : frame.records.filter((record) => keyOf(record, topic) === form.key);
      return setPage((old) => ({...old, records: [...wanted.reverse(), ...(old?.records ?? [])].slice(0, MOST_SHOWN), leftOut: (old?.leftOut ?? 0) + frame.leftOut}));
    };
    socket.onclose = () => setLive(false);
    stop.current = () => {
      socket.onclose = null;
      socket.close();
      setLive(false);
    };
  }

  const change = (name) => (event) => setForm({...form, [name]: event.target.value});
  return html`<div>
    <form class="filters" onSubmit=${(event) => {
      event.preventDefault();
      read();
    }}>
      <label>Read <select value=${form.place} onChange=${change("place")}>${Object.entries(PLACES).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
      ${form.place === "last" ? null : html`<label>${form.place === "since" ? "Time" : form.place === "offset" ? "Offset" : "Id"} <input value=${form.value} onInput=${change("value")} required placeholder=${form.place === "since" ? "2026-01-31T12:00:00Z" : "0"} /></label>`}
      <label>Partition <input class="short" inputmode="numeric" value=${form.partition} onInput=${change("partition")} placeholder="all" /></label>
      <label>Key is <input class="short" value=${form.key} onInput=${change("key")} placeholder="any" /></label>
      <label>At most <input class="short" inputmode="numeric" value=${form.limit} onInput=${change("limit")} /></label>
      ${topic.columns ? null : html`<label>Show values as <select value=${form.look} onChange=${change("look")}><option value="text">text</option><option value="json">JSON</option><option value="hex">hex</option></select></label>`}
      <button type="submit" disabled=${busy}>${busy ? "Reading…" : "Read"}</button>
      ${busy ? html`<button type="button" onClick=${() => stop.current?.()}>Stop</button>` : null}
      <button type="button" onClick=${live ? () => stop.current?.() : tail}>${live ? "Stop" : "Follow live"}</button>
    </form>
    <${Problem} text=${error} />
    <p class="muted" role="status">${said(page, live)}</p>
    ${page ? html`<${Page} page=${page} look=${form.look} topic=${topic} />` : null}
    <${CopyAs} topic=${topic} form=${form} sc=${about?.sc ?? "localhost:9003"} /></div>`;
}

function query(form) {
  const found = new URLSearchParams({limit: form.limit || "50"});
  if (form.place !== "last") found.set(form.place, form.value);
  if (form.partition !== "") found.set("partition", form.partition);
  if (form.key !== "") found.set("key", form.key);
  return found;
}

function said(page, live) {
  if (!page) return "";
  if (live) return `Live. ${count(page.records.length)} shown${page.leftOut ? `, ${count(page.leftOut)} left out: more come than a page shows` : ""}.`;
  if (page.live) return `Stopped. ${count(page.records.length)} shown.`;
  return `${count(page.records.length)} of ${count(page.scanned)} records read${page.more ? "; there are more" : ""}.`;
}

function keyOf(record, topic) {
  if (!topic.columns) return record.key;
  return topic.keyColumn == null ? null : String(record.value[topic.keyColumn]);
}

function Page({page, look, topic}) {
  if (!page.records.length) return html`<p class="muted">${page.live ? "Waiting for records." : "No record is there."}</p>`;
  const columns = page.columns;
  return html`<div class="table records" tabindex="0" role="region" aria-label="Records"><table>
    <thead><tr><th scope="col" class="right">Partition</th><th scope="col" class="right">Offset</th><th scope="col">Time</th>
      ${columns ? columns.map((column) => html`<th scope="col" key=${column.name}>${column.name}<span class="muted"> ${typeof column.type === "string" ? column.type : column.type?.name ?? ""}</span></th>`)
        : html`<th scope="col">Key</th><th scope="col">Value</th>`}</tr></thead>
    <tbody>${page.records.map((record) => html`<tr key=${`${record.partition}/${record.offset}`}>
      <td class="right">${record.partition}</td><td class="right">${record.offset}</td><td title=${record.timestamp}>${clock(record.timestamp)}</td>
      ${columns ? columns.map((column) => html`<td key=${column.name} class="cell">${cell(record.value[column.name])}</td>`)
        : html`<td class="cell">${shown(record, "key", look)}</td><td class="cell">${shown(record, "value", look)}${record.headers ? html`<div class="muted">${record.headers.map((header) => `${header.key}=${header.value ?? header.valueBase64}`).join(" ")}</div>` : null}</td>`}
    </tr>`)}</tbody></table></div>`;
}

function cell(value) {
  if (value == null) return html`<span class="muted">null</span>`;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function shown(record, name, look) {
  const text = record[name];
  const binary = record[`${name}Base64`];
  if (text == null && binary == null) return html`<span class="muted">null</span>`;
  const bytes = binary != null ? Uint8Array.from(atob(binary), (c) => c.charCodeAt(0)) : null;
  if (look === "hex" || bytes) return html`<code>${hex(bytes ?? new TextEncoder().encode(text))}</code>`;
  if (look === "json") {
    try {
      return html`<pre>${JSON.stringify(JSON.parse(text), null, 2)}</pre>`;
    } catch {
      return text;
    }
  }
  return text;
}

const hex = (bytes) => [...bytes.slice(0, 512)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ") + (bytes.length > 512 ? " …" : "");

function CopyAs({topic, form, sc}) {
  const {name} = topic;
  const {place} = form;
  const value = form.value || 0;
  const partition = form.partition === "" ? null : Number(form.partition);
  const limit = Number(form.limit) || 50;
  const cli = {last: `--tail ${limit}`, offset: `--offset ${value} -n ${limit}`, since: `--at ${form.value || "-1h"} -n ${limit}`, transaction: `--transaction-id ${value} -n ${limit}`}[place];
  const python = {last: `last=${limit}`, offset: `start=${value}`, since: `start=datetime.fromisoformat("${form.value}")`, transaction: `start=runnel.TransactionId(${value})`}[place];
  const first = place === "last" ? "" : `.slice(0, ${limit})`;
  const commands = {
    CLI: `runnel consume ${name} ${cli} --no-follow${partition == null ? "" : ` -p ${partition}`} -o json --sc ${sc}`,
    Python: `${place === "since" ? "from datetime import datetime\n" : ""}import runnel\nwith runnel.connect("${sc}") as cluster:\n    table = cluster.read("${name}", ${python}${partition == null ? "" : `, partitions=[${partition}]`})${first}`,
    Spark: `spark.read.format("runnel").option("sc", "${sc}").option("topic", "${name}")${spark({topic, place, value, partition, limit})}`,
  };
  return html`<section aria-labelledby="copy-as" class="copy-as"><h2 id="copy-as">The same elsewhere</h2>
    ${form.key === "" ? null : html`<p class="muted">These read records of all keys; choose those with your key from what they give.</p>`}
    ${Object.entries(commands).map(([title, text]) => html`<div key=${title}><h3>${title} <${Copy} text=${text} what=${`the query for ${title}`} /></h3><pre tabindex="0">${text}</pre></div>`)}</section>`;
}

function spark({topic, place, value, partition, limit}) {
  const filter = partition == null || place === "offset" ? "" : `.where("partition = ${partition}")`;
  switch (place) {
    case "last": return `.load()${filter}.orderBy("timestamp", ascending=False).limit(${limit})`;
    case "since": return `.load()${filter}.where("timestamp >= '${value}'").limit(${limit})`;
    case "transaction": return `.option("startingTransactionId", ${value}).load()${filter}.limit(${limit})`;
    default: {
      // Spark's offsets name every partition; -1 is the end.
      const offsets = Array.from({length: topic.partitions}, (_, index) => `"${index}": ${index === (partition ?? 0) ? value : -1}`);
      return `.option("startingOffsets", '{${offsets.join(", ")}}').load().limit(${limit})`;
    }
  }
}
