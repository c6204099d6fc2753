// A chart of values over time, drawn by uPlot.

import {html, useEffect, useRef} from "../vendor/preact-htm.js";
import {clock} from "./format.js";
import {useWidth} from "./ui.js";

/** A chart of less time than this begins earlier. */
const LEAST_S = 60;

/** Seconds since 1970, as the time of day: charts show less than an hour. */
function onAxis(seconds) {
  const text = new Date(seconds * 1000).toLocaleTimeString("en-GB");
  return text.endsWith(":00") ? text.slice(0, -3) : text;
}

/** `series`: {label, format, color}; `data`: a list of seconds, then one list for each series. */
export function Chart({title, series, data, height = 180}) {
  const box = useRef(null);
  const chart = useRef(null);
  const width = useWidth(box);
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = {stroke: color("--muted"), grid: {stroke: color("--line")}, ticks: {stroke: color("--line")}};
    const made = new uPlot({
      width, height,
      legend: {live: true},
      cursor: {y: false},
      scales: {x: {range: (_, low, high) => [Math.min(low ?? 0, (high ?? 0) - LEAST_S), high ?? 0]}, y: {range: (_, low, high) => [0, Math.max(1, high ?? 1) * 1.1]}},
      axes: [{...axis, values: (_, ticks) => ticks.map(onAxis)}, {...axis, size: 92, values: (_, ticks) => ticks.map(series[0].format)}],
      series: [{label: "time", value: (_, at) => (at == null ? "–" : clock(at * 1000))}, ...series.map((one) => ({
        label: one.label, stroke: color(one.color), width: 1.5, points: {show: false},
        value: (_, value) => (value == null ? "–" : one.format(value)),
      }))],
    }, data, box.current);
    chart.current = made;
    return () => made.destroy();
  }, []);
  useEffect(() => chart.current?.setData(data));
  useEffect(() => chart.current?.setSize({width, height}), [width]);
  const newest = series.map((one, index) => {
    const value = data[index + 1]?.at(-1);
    return `${one.label} ${value == null ? "unknown" : one.format(value)}`;
  });
  return html`<figure class="chart"><figcaption>${title}</figcaption>
    <div ref=${box} role="img" aria-label=${`${title}: now ${newest.join(", ")}`}></div></figure>`;
}
