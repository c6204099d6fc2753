// The page: navigation, the line of health, and the screen that the address names.

import {html, render, useEffect, useErrorBoundary, useReducer, useState} from "../vendor/preact-htm.js";
import {connect, connection, has, useTables} from "./live.js";
import {follow} from "./history.js";
import {ask, followLinks, State} from "./ui.js";
import {ClusterScreen} from "./screens/cluster.js";
import {PlacementScreen} from "./screens/placement.js";
import {TopicsScreen} from "./screens/topics.js";
import {TopicScreen} from "./screens/topic.js";
import {ConsumersScreen} from "./screens/consumers.js";
import {GroupsScreen} from "./screens/groups.js";
import {PipelinesScreen} from "./screens/pipelines.js";
import {StreamsScreen, StreamScreen} from "./screens/streams.js";
import {SpusScreen, SpuScreen} from "./screens/spus.js";
import {EventsScreen} from "./screens/events.js";
import {TraceScreen} from "./screens/trace.js";

const NAVIGATION = [
  ["/", "Cluster"], ["/topics", "Topics"], ["/streams", "Streams"], ["/placement", "Placement"], ["/consumers", "Consumers"],
  ["/groups", "Groups"], ["/pipelines", "Pipelines"], ["/spus", "SPUs"], ["/events", "Events"],
];

/** The screen of an address: its title, and what shows it. */
function screenOf(path, about) {
  const [, first = "", name, more] = path.split("/").map(decodeURIComponent);
  switch (first) {
    case "": return ["Cluster", html`<${ClusterScreen} about=${about} />`];
    case "placement": return ["Placement", html`<${PlacementScreen} />`];
    case "topics":
      if (name) return [`Topic ${name}`, html`<${TopicScreen} key=${name} name=${name} about=${about} />`];
      return ["Topics", html`<${TopicsScreen} />`];
    case "consumers": return ["Consumers", html`<${ConsumersScreen} name=${name} topic=${more} about=${about} />`];
    case "groups": return [name ? `Group ${name}` : "Reader groups", html`<${GroupsScreen} name=${name} />`];
    case "streams":
      if (name && more) return [`Stream ${name}/${more}`, html`<${StreamScreen} key=${`${name}/${more}`} name=${`${name}/${more}`} />`];
      return ["Streams", html`<${StreamsScreen} />`];
    case "pipelines": return ["Pipelines", html`<${PipelinesScreen} />`];
    case "spus":
      if (name) return [`SPU ${name}`, html`<${SpuScreen} key=${name} name=${name} />`];
      return ["SPUs", html`<${SpusScreen} />`];
    case "events": return ["Events", html`<${EventsScreen} />`];
    case "trace": return [`Trace ${name}`, html`<${TraceScreen} key=${name} cause=${name} />`];
    default: return ["Nothing here", html`<p>There is no screen at this address. <a href="/">To the cluster</a></p>`];
  }
}

function Health() {
  const [health] = useTables("health");
  const row = health.get("cluster");
  if (!connection.open || connection.trouble) {
    return html`<p class="health bad" role="status"><${State} state="lost" /> Not live: ${connection.trouble}</p>`;
  }
  if (!row) return html`<p class="health" role="status">Loading the cluster…</p>`;
  const kind = row.good ? "good" : row.offline || row.unwritable ? "bad" : "warn";
  return html`<p class=${`health ${kind}`} role="status">
    <strong>${row.good ? "● All is well" : kind === "bad" ? "✖ Unavailable" : "▲ Degraded"}</strong> ${row.text}</p>`;
}

/** A screen, or what went wrong in it: the others and the line of health go on. */
function Screen({children}) {
  const [error] = useErrorBoundary((failure) => console.error(failure));
  if (error) return html`<p class="problem" role="alert">This screen failed: ${String(error.message ?? error)}. Other screens go on; please report this.</p>`;
  return children;
}

function App() {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const [about, setAbout] = useState(null);
  useEffect(() => {
    addEventListener("popstate", redraw);
    document.addEventListener("click", followLinks);
    ask("/api/about").then(setAbout, () => setAbout({sc: "", records: true}));
    connect();
    follow();
  }, []);
  const path = location.pathname;
  const [title, screen] = screenOf(path, about);
  useEffect(() => {
    document.title = `${title} · Runnel`;
  }, [title]);
  useEffect(() => {
    scrollTo(0, 0);
  }, [path]);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <header>
      <a class="brand" href="/"><img src="/static/icon.svg" alt="" width="26" height="26" /> Runnel</a>
      <nav aria-label="Screens">${NAVIGATION.map(([to, text]) => {
        const here = to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`);
        return html`<a key=${to} href=${to} aria-current=${here ? "page" : null}>${text}</a>`;
      })}</nav>
      <span class="muted address">${about?.sc}</span>
    </header>
    <main id="main" tabindex="-1">
      <${Health} />
      <h1>${title}</h1>
      ${about || has("health") ? html`<${Screen} key=${path + location.search}>${screen}<//>` : null}
    </main>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
