// All that one request or session has led to, over all daemons, as a waterfall.

import {html} from "../../vendor/preact-htm.js";
import {clock} from "../format.js";
import {Command, Problem, State, useAnswer} from "../ui.js";

const NAMED = ["timestamp", "level", "event", "process", "module", "cause", "object"];

export function TraceScreen({cause}) {
  const {data, error, again} = useAnswer(`/api/trace/${encodeURIComponent(cause)}`);
  if (error) return html`<${Problem} text=${error} />`;
  if (!data) return html`<p class="muted">Asking all daemons…</p>`;
  const times = data.steps.map((step) => new Date(step.at).getTime());
  const begin = Math.min(...times);
  const span = Math.max(1, Math.max(...times) - begin);
  return html`<div>
    <p>${data.steps.length ? html`Began ${clock(begin)}; ${data.steps.length} steps in ${span.toLocaleString("en")} ms. ` : "No daemon remembers this id. Daemons keep their last log lines only. "}
      <button type="button" onClick=${again}>Ask again</button></p>
    ${Object.entries(data.away).map(([name, why]) => html`<${Problem} key=${name} text=${`${name} did not answer: ${why}`} />`)}
    ${data.notes.map((note) => html`<p key=${note} class="muted">${note}</p>`)}
    <ol class="waterfall">${data.steps.map((step, index) => html`<li key=${index}>
      <span class="at">+${(times[index] - begin).toLocaleString("en")} ms</span>
      <span class="track" aria-hidden="true"><span class=${step.process === "sc" ? "dot" : "dot spu"} style=${`left:${((times[index] - begin) / span) * 98}%`}></span></span>
      <span class=${`what depth-${step.depth}`}><strong>${step.process}</strong> ${step.object ?? ""} ${said(step)}</span></li>`)}</ol>
    <${Command} text=${`runnel trace ${cause}`} /></div>`;
}

function said(step) {
  if (step.change) {
    const change = step.change;
    return html`${change.change} ${change.resolution ? html`<${State} state=${change.resolution} />` : null} <span class="muted">${change.reason ?? change.changed.join(", ")}</span>`;
  }
  const more = Object.entries(step.line).filter(([key]) => !NAMED.includes(key));
  return html`${step.line.event} <span class="muted">${more.map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ")}</span>`;
}
