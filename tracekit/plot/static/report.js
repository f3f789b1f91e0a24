// The page of an offline report: unpacks what the file holds, draws its heat-map and timeline.
// It stands behind lanes.js in one module script, and asks nothing of any network.

const FIGURES = [
  ["window_us", "time of the step's work", "ms"], ["period_us", "from step to step", "ms"],
  ["compute_us", "compute", "ms"], ["exposed_comm_us", "exposed communication", "ms"],
  ["exposed_wait_us", "exposed: waiting for a late rank", "ms"],
  ["exposed_transfer_us", "exposed: moving bytes", "ms"], ["idle_us", "idle", "ms"],
  ["lead_us", "before its first work", "ms"], ["overlap_frac", "communication under compute", "%"],
];
const MAX_CELLS_IN_TABLE = 4000;

async function unpack(id) {
  const text = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(plain).arrayBuffer();
}

async function unpackJson(id) {
  return JSON.parse(new TextDecoder().decode(await unpack(id)));
}

function valueText(value, unit) {
  if (value === null || value === undefined) return "not known";
  return unit === "%" ? `${(100 * value).toFixed(1)} %` : `${(value / 1000).toFixed(3)} ms`;
}

/** A heat-map of ranks and steps; a click, or Enter, goes to that step in the timeline. */
class HeatMap {
  constructor(heat, scale, timeline) {
    this.heat = heat;
    this.stops = scale.map(rgbOf);
    this.timeline = timeline;
    this.at = [0, 0];
    this.canvas = document.getElementById("map");
    this.select = document.getElementById("figure");
    this.told = document.getElementById("cell");
    for (const [key, label] of FIGURES) {
      if (!heat.values[key]?.some((v) => v !== null)) continue;
      this.select.append(make("option", { value: key }, label));
    }
    this.select.addEventListener("change", () => this.draw());
    this.canvas.addEventListener("pointermove", (e) => this.tell(this.cellAt(e)));
    this.canvas.addEventListener("click", (e) => { this.tell(this.cellAt(e)); this.go(); });
    this.canvas.addEventListener("keydown", (e) => this.key(e));
    document.getElementById("cells").addEventListener("toggle", () => this.table());
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    this.draw();
  }

  get figure() { return FIGURES.find(([key]) => key === this.select.value); }

  value(rank, step) {
    return this.heat.values[this.figure[0]][rank * this.heat.steps.length + step];
  }

  draw() {
    const { ranks, steps } = this.heat;
    if (!this.figure) return;
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    this.cellHeight = Math.max(3, Math.min(22, Math.floor(520 / ranks.length)));
    const height = ranks.length * this.cellHeight + 18;
    this.canvas.style.height = `${height}px`;
    const context = sized(this.canvas, width, height, ratio);
    if (!context) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--tracekit-${name}`).trim();
    this.isDark = style.colorScheme === "dark";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = colour("paper");
    context.fillRect(0, 0, width, height);
    this.left = 64;
    this.cellWidth = (width - this.left) / steps.length;
    this.limits();
    ranks.forEach((_, r) => steps.forEach((__, s) => this.cell(context, r, s, colour("line"))));
    context.fillStyle = colour("faint");
    context.font = '11px system-ui, "Segoe UI", Roboto, sans-serif';
    context.textBaseline = "middle";
    const every = Math.ceil(13 / this.cellHeight);
    ranks.forEach((rank, r) => {
      if (r % every === 0) context.fillText(`rank ${rank}`, 4, (r + 0.5) * this.cellHeight);
    });
    const sparse = Math.ceil(56 / this.cellWidth);
    steps.forEach((step, s) => {
      const x = this.left + s * this.cellWidth + 1;
      if (s % sparse === 0) context.fillText(`step ${step}`, x, height - 8);
    });
    this.frame(context, colour("focus"));
    this.drawScale();
    this.tell(this.at);
    this.table();
  }

  limits() {
    const known = this.heat.values[this.figure[0]].filter((v) => v !== null).sort((a, b) => a - b);
    const most = known[known.length - 1] ?? 1;
    const nearly = known[Math.floor(0.98 * (known.length - 1))] ?? 1;
    this.low = Math.min(0, known[0] ?? 0);
    if (known.length && known[0] > 0.5 * most) this.low = known[0];
    this.isCapped = most - this.low > 3 * (nearly - this.low) && nearly > this.low;
    this.high = this.isCapped ? nearly : most;
  }

  shade(value) {
    const part = this.high > this.low ? (value - this.low) / (this.high - this.low) : 0;
    const clipped = Math.min(Math.max(part, 0), 1);
    const at = (this.isDark ? 1 - clipped : clipped) * (this.stops.length - 1);
    const [a, b] = [this.stops[Math.floor(at)], this.stops[Math.ceil(at)]];
    return `rgb(${a.map((c, i) => Math.round(c + (b[i] - c) * (at % 1))).join(" ")})`;
  }

  cell(context, r, s, line) {
    const value = this.value(r, s);
    const x = this.left + s * this.cellWidth;
    const w = Math.max(this.cellWidth - (this.cellWidth > 6 ? 1 : 0), 0.6);
    const h = this.cellHeight - (this.cellHeight > 5 ? 1 : 0);
    if (value === null || value === undefined) {
      context.fillStyle = line;
      context.fillRect(x, r * this.cellHeight + h / 2, w, 1);
      return;
    }
    context.fillStyle = this.shade(value);
    context.fillRect(x, r * this.cellHeight, w, h);
  }

  frame(context, colour) {
    const [r, s] = this.at;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    const [x, w] = [this.left + s * this.cellWidth, Math.max(this.cellWidth - 1, 2)];
    context.strokeRect(x, r * this.cellHeight, w, this.cellHeight - 1);
  }

  drawScale() {
    const canvas = document.getElementById("scale");
    const context = sized(canvas, canvas.clientWidth, canvas.clientHeight, 1);
    for (let x = 0; context && x < canvas.width; x++) {
      context.fillStyle = this.shade(this.low + (x / canvas.width) * (this.high - this.low));
      context.fillRect(x, 0, 1, canvas.height);
    }
    const unit = this.figure[2];
    document.getElementById("low").textContent = valueText(this.low, unit);
    const above = this.isCapped ? " and above" : "";
    document.getElementById("high").textContent = valueText(this.high, unit) + above;
  }

  cellAt(e) {
    const box = this.canvas.getBoundingClientRect();
    const s = Math.floor((e.clientX - box.left - this.left) / this.cellWidth);
    const r = Math.floor((e.clientY - box.top) / this.cellHeight);
    const { ranks, steps } = this.heat;
    return r >= 0 && r < ranks.length && s >= 0 && s < steps.length ? [r, s] : this.at;
  }

  tell([r, s]) {
    const isNew = r !== this.at[0] || s !== this.at[1];
    this.at = [r, s];
    const [, label, unit] = this.figure;
    const where = `rank ${this.heat.ranks[r]}, step ${this.heat.steps[s]}`;
    this.told.textContent = `${where}: ${label} ${valueText(this.value(r, s), unit)}`;
    if (isNew) this.draw();
  }

  key(e) {
    const [r, s] = this.at;
    const { ranks, steps } = this.heat;
    const moves = {
      ArrowUp: [r - 1, s], ArrowDown: [r + 1, s], ArrowLeft: [r, s - 1], ArrowRight: [r, s + 1],
    };
    if (e.key === "Enter") this.go();
    else if (Object.hasOwn(moves, e.key)) {
      const [a, b] = moves[e.key];
      const within = (n, list) => Math.min(Math.max(n, 0), list.length - 1);
      this.tell([within(a, ranks), within(b, steps)]);
    } else return;
    e.preventDefault();
  }

  go() {
    const [r, s] = this.at;
    const span = this.heat.spans[r * this.heat.steps.length + s];
    if (!span) return;
    const margin = 0.03 * (span[1] - span[0]);
    this.timeline.view(span[0] - margin, span[1] + margin);
    document.getElementById("timeline").scrollIntoView({ block: "start" });
  }

  table() {
    const place = document.getElementById("cells");
    if (!place.open) return;
    const { ranks, steps } = this.heat;
    const shown = steps.slice(0, Math.max(1, Math.floor(MAX_CELLS_IN_TABLE / ranks.length)));
    const unit = this.figure[2];
    const text = (value) => {
      if (value === null || value === undefined) return "";
      return unit === "%" ? (100 * value).toFixed(1) : (value / 1000).toFixed(3);
    };
    const head = make("tr", {}, make("th", { scope: "col" }, `${this.figure[1]} in ${unit}`),
      ...shown.map((step) => make("th", { scope: "col", class: "n" }, `step ${step}`)));
    const rows = ranks.map((rank, r) => make("tr", {}, make("th", { scope: "row" }, `rank ${rank}`),
      ...shown.map((_, s) => make("td", { class: "n" }, text(this.value(r, s))))));
    const isCut = shown.length < steps.length;
    const cut = isCut ? `the first ${shown.length} of ${steps.length} steps` : "";
    place.querySelector("div").replaceChildren(
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)),
      make("p", { class: "faint" }, cut));
  }
}

async function openReport() {
  const [data, block] = await Promise.all([unpackJson("data"), unpack("block")]);
  const timeline = mount(document.getElementById("lanes"), fixedSource({ ...data, block }));
  if (document.getElementById("map")) window.heatMap = new HeatMap(data.heat, data.scale, timeline);
  window.timeline = timeline;
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = getComputedStyle(root).colorScheme === "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    window.heatMap?.draw();
  });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => window.heatMap?.draw());
  await timeline.ready;
}

openReport().catch((error) => {
  document.getElementById("lanes").replaceChildren(make("p", { class: "error" },
    `this browser cannot show the timeline: ${error.message}`));
});
