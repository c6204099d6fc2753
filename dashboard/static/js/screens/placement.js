// Where all replicas are: a row for each partition, a column for each SPU, drawn on a canvas of
// which only the part in sight is painted.

import {html, useEffect, useLayoutEffect, useMemo, useRef, useState} from "../../vendor/preact-htm.js";
import {percent, plural} from "../format.js";
import {useTables} from "../live.js";
import {Command, navigate, useWidth} from "../ui.js";

const [TOPIC, INDEX, LEADER, REPLICAS, LIVE, STATE, REASON, PROGRESS] = [0, 1, 2, 3, 4, 5, 6, 7];
const HEAD = 28;
const SIZES = {small: 4, large: 18};
const LABEL = {small: 0, large: 170};
const SHOWN_PX = 560;
const FILTERS = {all: () => true, wrong: (row) => row[STATE] !== "online" && row[STATE] !== "sealed"};

export function PlacementScreen() {
  const [partitions, spus] = useTables("partitions", "spus", "health");
  const [filter, setFilter] = useState("all");
  const [topic, setTopic] = useState("");
  const [size, setSize] = useState(null);
  const rows = useMemo(() => {
    const found = [...partitions.entries()].filter(([, row]) => row[TOPIC].includes(topic.trim()) && FILTERS[filter](row));
    return found.sort(([, a], [, b]) => (a[TOPIC] < b[TOPIC] ? -1 : a[TOPIC] > b[TOPIC] ? 1 : a[INDEX] - b[INDEX]));
  }, [partitions, filter, topic]);
  const members = useMemo(() => [...spus.values()].sort((a, b) => a.id - b.id), [spus]);
  const chosen = size ?? (rows.length > 400 ? "small" : "large");
  return html`<div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Topic contains <input type="search" value=${topic} onInput=${(event) => setTopic(event.target.value)} /></label>
      <label>Show <select value=${filter} onChange=${(event) => setFilter(event.target.value)}><option value="all">all partitions</option><option value="wrong">those that are not well</option></select></label>
      <label>Rows <select value=${chosen} onChange=${(event) => setSize(event.target.value)}><option value="large">large</option><option value="small">small</option></select></label>
    </form>
    <p class="legend"><span class="key leader">leader</span><span class="key live">live follower</span><span class="key catching">catching up</span><span class="key away">not live</span><span class="key offline">no leader</span></p>
    <${Matrix} rows=${rows} spus=${members} size=${chosen} />
    <${Command} text="runnel get partitions" /></div>`;
}

function Matrix({rows, spus, size}) {
  const box = useRef(null);
  const canvas = useRef(null);
  const width = useWidth(box);
  const [scroll, setScroll] = useState(0);
  const [cursor, setCursor] = useState(null);
  const rowPx = SIZES[size];
  const label = width < 500 ? LABEL[size] * 0.6 : LABEL[size];
  const height = Math.min(SHOWN_PX, HEAD + Math.max(1, rows.length) * rowPx);
  const cell = Math.max(3, Math.min(90, (width - label) / Math.max(1, spus.length)));
  const limit = Math.max(0, HEAD + rows.length * rowPx - height);
  const top = Math.min(scroll, limit);
  useLayoutEffect(() => {
    paint(canvas.current, {rows, spus, rowPx, label, cell, width, height, top, cursor});
  }, [rows, spus, rowPx, width, height, top, cursor, label]);
  useEffect(() => {
    const redraw = () => paint(canvas.current, {rows, spus, rowPx, label, cell, width, height, top, cursor});
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    return () => scheme.removeEventListener("change", redraw);
  });
  const at = (event) => {
    const bounds = canvas.current.getBoundingClientRect();
    const row = Math.floor((event.clientY - bounds.top - HEAD + top) / rowPx);
    const column = Math.floor((event.clientX - bounds.left - label) / cell);
    return row >= 0 && row < rows.length && event.clientY - bounds.top >= HEAD ? {row, column: Math.max(0, Math.min(spus.length - 1, column))} : null;
  };
  const show = (next) => {
    setCursor(next);
    const y = next.row * rowPx;
    if (y < top) box.current.scrollTop = y;
    else if (y + rowPx > top + height - HEAD) box.current.scrollTop = y + rowPx - height + HEAD;
  };
  const pressed = (event) => {
    const now = cursor ?? {row: 0, column: 0};
    const page = Math.max(1, Math.floor((height - HEAD) / rowPx) - 1);
    const moves = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0], Home: [-rows.length, 0], End: [rows.length, 0]};
    if (event.key === "Enter" && rows[now.row]) return navigate(`/topics/${rows[now.row][1][TOPIC]}`);
    const move = moves[event.key];
    if (!move || !rows.length) return undefined;
    event.preventDefault();
    return show({
      row: Math.max(0, Math.min(rows.length - 1, now.row + move[0])),
      column: Math.max(0, Math.min(spus.length - 1, now.column + move[1])),
    });
  };
  const told = cursor && rows[cursor.row] ? describe(rows[cursor.row], spus[cursor.column]) : "Point at a cell, or use the arrow keys; Enter opens the topic.";
  return html`<div>
    <div class="placement" ref=${box} onScroll=${(event) => setScroll(event.target.scrollTop)} style=${`height:${height}px`}
      tabindex="0" role="application" aria-label=${`Placement of ${plural(rows.length, "partition")} on ${plural(spus.length, "SPU")}`} aria-describedby="lens" onKeyDown=${pressed}>
      <div class="placement-space" style=${`height:${HEAD + rows.length * rowPx}px`}>
        <canvas ref=${canvas} onMouseMove=${(event) => setCursor(at(event) ?? cursor)} onClick=${(event) => {
          const found = at(event);
          if (found) navigate(`/topics/${rows[found.row][1][TOPIC]}`);
        }}></canvas>
      </div>
    </div>
    <p id="lens" class="lens" role="status">${told}</p></div>`;
}

function kindOf(row, spu) {
  if (!row[REPLICAS].includes(spu)) return null;
  if (row[STATE] === "offline") return "offline";
  if (row[LEADER] === spu) return "leader";
  if (row[LIVE].includes(spu)) return "live";
  return (row[PROGRESS][spu] ?? 0) > 0 ? "catching" : "away";
}

const WORDS = {leader: "leads", live: "is a live follower", catching: "catches up", away: "is not live", offline: "holds a replica; the partition has no leader"};

function describe([name, row], spu) {
  if (!spu) return name;
  const kind = kindOf(row, spu.id);
  const what = kind === null ? "holds no replica" : WORDS[kind];
  const progress = kind === "catching" ? `, ${percent(row[PROGRESS][spu.id])} of the log` : "";
  return `${name} (${row[STATE]}): SPU ${spu.id} ${spu.name} ${what}${progress}. ${row[REASON]}`;
}

function paint(canvas, {rows, spus, rowPx, label, cell, width, height, top, cursor}) {
  if (!canvas) return;
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const style = getComputedStyle(document.documentElement);
  const color = Object.fromEntries(["leader", "live", "catching", "away", "offline", "text", "muted", "surface", "line"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const first = Math.floor(top / rowPx);
  const last = Math.min(rows.length, first + Math.ceil((height - HEAD) / rowPx) + 1);
  const gap = rowPx > 8 ? 2 : 0.5;
  let topic = null;
  for (let number = first; number < last; number += 1) {
    const [name, row] = rows[number];
    const y = HEAD + number * rowPx - top;
    if (row[TOPIC] !== topic && topic !== null) {
      pen.fillStyle = color.line;
      pen.fillRect(0, y, width, 1);
    }
    topic = row[TOPIC];
    if (label) {
      pen.fillStyle = color.text;
      pen.fillText(name, 2, y + rowPx / 2, label - 8);
    }
    spus.forEach((spu, column) => {
      const kind = kindOf(row, spu.id);
      if (kind) drawCell(pen, kind, {color: color[kind], surface: color.surface}, label + column * cell, y, cell - gap, rowPx - gap, row[PROGRESS][spu.id]);
    });
  }
  pen.fillStyle = color.surface;
  pen.fillRect(0, 0, width, HEAD);
  pen.fillStyle = color.text;
  spus.forEach((spu, column) => {
    if (cell > 14 || spu.id % 5 === 0) pen.fillText(cell > 50 ? spu.name : String(spu.id), label + column * cell + 2, HEAD / 2, Math.max(12, cell - 4));
  });
  if (cursor) {
    pen.strokeStyle = color.text;
    pen.lineWidth = 2;
    pen.strokeRect(label + cursor.column * cell, HEAD + cursor.row * rowPx - top, cell, rowPx);
  }
}

/** A cell: a full box, one with an edge, stripes, a cross: they differ without colours, too. */
function drawCell(pen, kind, {color, surface}, x, y, width, height, progress) {
  pen.fillStyle = color;
  pen.strokeStyle = color;
  if (kind === "leader") pen.fillRect(x, y, width, height);
  else if (height < 8) {
    pen.globalAlpha = kind === "live" ? 0.55 : 1;
    pen.fillRect(x, y, width, height);
    pen.globalAlpha = 1;
  } else if (kind === "live") {
    pen.globalAlpha = 0.25;
    pen.fillRect(x, y, width, height);
    pen.globalAlpha = 1;
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  } else if (kind === "catching") {
    pen.lineWidth = 1;
    pen.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    pen.fillRect(x, y + height - 5, width * (progress ?? 0), 5);
  } else {
    pen.lineWidth = 1.5;
    if (kind === "offline") {
      pen.fillRect(x, y, width, height);
      pen.strokeStyle = surface;
    }
    pen.beginPath();
    pen.rect(x + 1, y + 1, width - 2, height - 2);
    pen.moveTo(x + 1, y + 1);
    pen.lineTo(x + width - 1, y + height - 1);
    pen.moveTo(x + width - 1, y + 1);
    pen.lineTo(x + 1, y + height - 1);
    pen.stroke();
  }
}
