// Parts that all screens use: links, states, tables, copying, answers of the server.

import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from "../vendor/preact-htm.js";

const ROW_PX = 34;
const VISIBLE_ROWS = 40;
/** Above so many rows, a table draws only those that are in sight. */
const VIRTUAL_ROWS = 120;

const BAD = ["offline", "failed", "not writable", "unavailable", "error", "invalid", "lost"];
const WARN = ["under-replicated", "degraded", "init", "unknown", "draining", "notice", "pending",
  "warning", "deleting", "insufficient resources"];

/** States that somebody chose, and that are neither well nor ill. */
const CALM = ["stopped"];

/** How bad a state is: "good", "calm", "warn" or "bad". */
export function tone(state) {
  const text = String(state).toLowerCase();
  if (BAD.includes(text)) return "bad";
  if (WARN.includes(text)) return "warn";
  return CALM.includes(text) ? "calm" : "good";
}

/** A state in a word: a sign and the text, so that it does not depend on colour. */
export function State({state, title}) {
  const kind = tone(state);
  const sign = {good: "●", calm: "■", warn: "▲", bad: "✖"}[kind];
  return html`<span class=${`state ${kind}`} title=${title}><span aria-hidden="true">${sign}</span> ${state}</span>`;
}

export function navigate(path) {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
}

/** Links to other screens do not load the page again. */
export function followLinks(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || link.target || url.pathname.startsWith("/static")) return;
  if (url.hash && url.pathname === location.pathname) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
}

/** Ask the server; gives {data, error, loading, again}. `everyMs` asks again and again. */
export function useAnswer(path, everyMs = 0) {
  const [answer, setAnswer] = useState({data: null, error: null, loading: true, path: null});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!path) return undefined;
    const abort = new AbortController();
    let timer = null;
    const run = async () => {
      try {
        const data = await ask(path, abort.signal);
        setAnswer({data, error: null, loading: false, path});
      } catch (error) {
        if (abort.signal.aborted) return;
        setAnswer((old) => ({data: old.path === path ? old.data : null, error: error.message, loading: false, path}));
      }
      if (everyMs && !abort.signal.aborted) timer = setTimeout(run, everyMs);
    };
    setAnswer((old) => ({...old, data: old.path === path ? old.data : null, loading: true}));
    run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, turn]);
  return {...answer, again: () => setTurn((value) => value + 1)};
}

/** The JSON of an answer. Throws an Error that says what the server said. */
export async function ask(path, signal) {
  let response;
  try {
    response = await fetch(path, {signal, headers: {Accept: "application/json"}});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the dashboard does not answer");
  }
  const data = await response.json().catch(() => null);
  if (!response.ok) throw new Error(data?.message ?? `${response.status} ${response.statusText}`);
  return data;
}

export function Problem({text}) {
  return text ? html`<p class="problem" role="alert">${text}</p>` : null;
}

/** A command to copy. */
export function Command({text, label = "In a terminal"}) {
  return html`<div class="command"><span class="muted">${label}</span> <code>${text}</code> <${Copy} text=${text} /></div>`;
}

export function Copy({text, what = text, children = "Copy"}) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without https, browsers have no clipboard for pages.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button type="button" class="small" onClick=${copy} aria-label=${`Copy: ${what}`}>${done ? "Copied" : children}</button>`;
}

/**
 * A table of rows. `columns`: {name, title, of(row), show(row), right, hint}; `of` gives what it is
 * sorted by. With many rows, only those in sight are in the page.
 */
export function Table({columns, data, keyOf, sortBy, descending = false, label, empty = "Nothing here."}) {
  const [order, setOrder] = useState({name: sortBy ?? columns[0].name, descending});
  const [first, setFirst] = useState(0);
  const box = useRef(null);
  const sorted = useMemo(() => {
    const column = columns.find((one) => one.name === order.name) ?? columns[0];
    const made = data.map((row) => [column.of(row), row]);
    const sign = order.descending ? -1 : 1;
    made.sort(([a], [b]) => sign * compare(a, b));
    return made.map(([, row]) => row);
  }, [data, order.name, order.descending]);
  const virtual = sorted.length > VIRTUAL_ROWS;
  const begin = virtual ? Math.max(0, Math.min(first, sorted.length - VISIBLE_ROWS)) : 0;
  const shown = virtual ? sorted.slice(begin, begin + VISIBLE_ROWS) : sorted;
  const scrolled = () => {
    if (virtual) setFirst(Math.max(0, Math.floor(box.current.scrollTop / ROW_PX) - 8));
  };
  if (!data.length) return html`<p class="muted">${empty}</p>`;
  const sort = (column) => setOrder({
    name: column.name,
    descending: order.name === column.name ? !order.descending : Boolean(column.right),
  });
  return html`<div class=${virtual ? "table virtual" : "table"} ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label=${label}>
    <table aria-rowcount=${sorted.length + 1}>
      <thead><tr>${columns.map((column) => html`<th key=${column.name} scope="col" class=${column.right ? "right" : ""}
        aria-sort=${order.name !== column.name ? "none" : order.descending ? "descending" : "ascending"}>
        <button type="button" onClick=${() => sort(column)} title=${column.hint}>${column.title}${order.name === column.name ? html`<span aria-hidden="true">${order.descending ? " ▾" : " ▴"}</span>` : ""}</button>
      </th>`)}</tr></thead>
      <tbody>
        ${begin ? html`<tr key=" above" aria-hidden="true" style=${`height:${begin * ROW_PX}px`}><td colspan=${columns.length}></td></tr>` : null}
        ${shown.map((row, index) => html`<tr key=${keyOf(row)} aria-rowindex=${begin + index + 2}>${columns.map((column) => html`<td key=${column.name} class=${column.right ? "right" : column.wide ? "wide" : ""}>${column.show ? column.show(row) : column.of(row)}</td>`)}</tr>`)}
        ${virtual && begin + VISIBLE_ROWS < sorted.length ? html`<tr key=" below" aria-hidden="true" style=${`height:${(sorted.length - begin - VISIBLE_ROWS) * ROW_PX}px`}><td colspan=${columns.length}></td></tr>` : null}
      </tbody>
    </table>
  </div>`;
}

function compare(a, b) {
  if (a == null || b == null) return (a == null) - (b == null);
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A line of the last values. */
export function Sparkline({values, label}) {
  if (!values || values.length < 2) return html`<svg class="spark" viewBox="0 0 100 24" role="img" aria-label=${label}></svg>`;
  const top = Math.max(1, ...values);
  const step = 100 / (values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(23 - 22 * value / top).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${label}><polyline points=${points} /></svg>`;
}

/** Tabs whose choice is in the address: ?tab=NAME. */
export function Tabs({tabs, chosen, label}) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map(([name, title]) => html`<a key=${name}
    href=${name === tabs[0][0] ? location.pathname : `${location.pathname}?tab=${name}`} aria-current=${name === chosen ? "page" : null}>${title}</a>`)}</nav>`;
}

/** The size of an element, kept up to date. */
export function useWidth(reference, start = 600) {
  const [width, setWidth] = useState(start);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(120, Math.floor(entry.contentRect.width))));
    observer.observe(reference.current);
    return () => observer.disconnect();
  }, []);
  return width;
}
