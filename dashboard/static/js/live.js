// The tables of the cluster, kept up to date over one WebSocket.
//
// A screen says with `useTables` which tables it shows. All screens share one connection, which
// asks for what they show together; a broken one is opened again, and begins with everything.

import {useEffect, useReducer} from "../vendor/preact-htm.js";

const RETRY_MS = [250, 500, 1000, 2000];

/** Rows by key, for each table that is shown. */
const tables = new Map();
const readers = new Map();
const listeners = new Set();
const sampled = new Set();

export const connection = {open: false, trouble: "connecting to the dashboard"};

let socket = null;
let failures = 0;
let heardAt = 0;
let drawing = false;

/** The rows of a table: a Map from its keys, empty until the first rows came. */
export function rows(name) {
  return tables.get(name) ?? new Map();
}

/** Whether a table has come. */
export function has(name) {
  return tables.has(name);
}

/** Show these tables for as long as the component is there; draw it again when they change. */
export function useTables(...names) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const key = names.join(" ");
  useEffect(() => {
    for (const name of names) readers.set(name, (readers.get(name) ?? 0) + 1);
    listeners.add(redraw);
    ask();
    return () => {
      listeners.delete(redraw);
      for (const name of names) {
        const left = readers.get(name) - 1;
        if (left) readers.set(name, left);
        else readers.delete(name);
      }
      // The next screen shows its tables first.
      setTimeout(ask);
    };
  }, [key]);
  return names.map(rows);
}

/** Call a function with every message, before anything is drawn; gives what ends that. */
export function onMessage(call) {
  sampled.add(call);
  return () => sampled.delete(call);
}

function ask() {
  const names = [...readers.keys()].sort();
  for (const name of tables.keys()) {
    if (!readers.has(name)) tables.delete(name);
  }
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({tables: names}));
}

export function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/live`);
  socket.onopen = () => {
    failures = 0;
    heardAt = Date.now();
    ask();
  };
  socket.onmessage = (event) => take(JSON.parse(event.data));
  socket.onclose = () => {
    connection.open = false;
    connection.trouble = "the dashboard does not answer; trying again";
    draw();
    const wait = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
    setTimeout(connect, wait);
  };
}

/** A dashboard that says nothing for so long stands still: it sends something every two seconds. */
const SILENT_MS = 6000;

setInterval(() => {
  if (socket?.readyState !== WebSocket.OPEN || Date.now() - heardAt < SILENT_MS) return;
  connection.trouble = `the dashboard has sent nothing for ${Math.round((Date.now() - heardAt) / 1000)} s`;
  draw();
}, 1000);

function take(message) {
  heardAt = Date.now();
  connection.open = true;
  connection.trouble = message.trouble;
  for (const [name, changes] of Object.entries(message.tables)) {
    if (!readers.has(name)) continue;
    // A new Map, so that what is made of it is made anew; the rows that stay are the same.
    const table = changes.whole ? new Map() : new Map(tables.get(name));
    for (const key of changes.gone) table.delete(key);
    for (const [key, row] of Object.entries(changes.rows)) table.set(key, row);
    tables.set(name, table);
  }
  for (const call of sampled) call(message);
  draw();
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    for (const redraw of [...listeners]) redraw();
  });
}
