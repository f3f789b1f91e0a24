/**
 * The timeline: lanes of ranks, streams and threads on one canvas, to a million events and beyond.
 *
 * One plain ES module for three hosts: `mount(element, httpSource(url))` in a page,
 * the default export in a notebook (anywidget), `mount(element, fixedSource(data))` in a file.
 * A source answers `ask(method, params, signal)` as `tracekit.plot.timeline.Timeline.answer` does;
 * blocks are laid out as `tracekit/plot/block.py` says. Texts of traces only ever become text.
 */

const LABEL_PX = 190;
const HEAD_PX = 22;
const STREAM_PX = 18;
const THREAD_PX = 14;
const GAP_PX = 3;
/** rows of a lane that are shown before it is opened */
const COMPACT_ROWS = 6;
/** narrower events share columns of pixels, shaded by how busy they are */
const WIDE_PX = 4;
const WHOLE_LIMIT = 1_000_000;
const PART_LIMIT = 100_000;
/** events held of all ranks before further ranks get only their longest */
const HELD_EVENTS = 3_000_000;
const TABLE_ROWS = 200;
const ZOOM_STEP = 1.35;
const SETTLE_MS = 120;

// -- blocks ---------------------------------------------------------------------------------------

/** Read a block of bytes into views of its columns; nothing is copied where it is aligned. */
export function readBlock(data) {
  const view = ArrayBuffer.isView(data) ? data : new Uint8Array(data);
  let { buffer, byteOffset } = view;
  if (byteOffset % 8) {
    buffer = buffer.slice(byteOffset, byteOffset + view.byteLength);
    byteOffset = 0;
  }
  const bytes = new Uint8Array(buffer, byteOffset);
  if (bytes[0] !== 84 || bytes[1] !== 75 || bytes[2] !== 76 || bytes[3] !== 49) {
    throw new Error("this is no block of a timeline");
  }
  const length = new DataView(buffer, byteOffset + 4, 4).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const types = { f8: Float64Array, u4: Uint32Array, i4: Int32Array, u1: Uint8Array };
  const block = {
    t0: head.t0, t1: head.t1, binNs: head.binNs, numBins: head.numBins, names: head.names,
  };
  for (const key of ["start", "dur", "name", "row", "role", "busy", "most"]) {
    const [kind, offset, count] = head.columns[key];
    block[key] = new types[kind](buffer, byteOffset + 8 + length + offset, count);
  }
  const ranks = head.ranks.map((r) => ({ ...r, block, lanes: r.lanes.map(readLane) }));
  block.ranks = new Map(ranks.map((r) => [r.rank, r]));
  return block;
}

function readLane(lane) {
  const rows = lane.rows.map(([first, count, bins]) => ({ first, count, bins }));
  return { kind: lane.kind, title: lane.title, numEvents: lane.numEvents, rows };
}

/** First event of a row that ends after `t`; events of a row do not overlap. */
function firstAfter(block, row, t) {
  let low = row.first;
  let high = row.first + row.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (block.start[middle] + block.dur[middle] < t) low = middle + 1;
    else high = middle;
  }
  return low;
}

// -- sources --------------------------------------------------------------------------------------

/** Ask a server: GET {base}/{method}?…; a block is bytes, all else JSON. */
export function httpSource(base) {
  return {
    async ask(method, params = {}, signal = undefined) {
      const given = Object.entries(params).filter(([, v]) => v !== undefined && v !== null);
      const query = new URLSearchParams(given.map(([k, v]) => [k, String(v === true ? 1 : v)]));
      const how = { signal, credentials: "same-origin" };
      const reply = await fetch(`${base}/${method}?${query}`, how);
      if (!reply.ok) {
        throw new Error((await reply.text()).slice(0, 300) || `status ${reply.status}`);
      }
      return method === "block" ? reply.arrayBuffer() : reply.json();
    },
  };
}

/** Ask the kernel of a notebook by messages. */
export function messageSource(model) {
  const waiting = new Map();
  let last = 0;
  const take = (message, buffers) => {
    const asked = waiting.get(message.id);
    if (!asked) return;
    waiting.delete(message.id);
    if (message.error) asked.reject(new Error(message.error));
    else asked.resolve(buffers && buffers.length ? buffers[0] : message.result);
  };
  model.on("msg:custom", take);
  return {
    ask(method, params = {}, signal = undefined) {
      return new Promise((resolve, reject) => {
        const id = `${++last}.${Math.random()}`;
        waiting.set(id, { resolve, reject });
        signal?.addEventListener("abort", () => {
          waiting.delete(id);
          reject(new DOMException("no longer wanted", "AbortError"));
        });
        model.send({ id, method, params });
      });
    },
    close: () => model.off("msg:custom", take),
  };
}

/** Answer from what a file holds: its outline, one block of all ranks, its collectives. */
export function fixedSource({ outline, block, collectives, owners }) {
  const read = readBlock(block);
  const owner = new Map(owners.map(([rank, row, number]) => [`${rank} ${row}`, number]));
  const flow = ({ rank, row }) => {
    const number = owner.get(`${rank} ${row}`);
    return number === undefined ? null : collectives[number];
  };
  const answers = {
    outline: () => ({ ...outline, fixed: true }),
    block: () => read,
    flow,
    event: (asked) => {
      const at = findRow(read, asked.rank, asked.row);
      if (at < 0) throw new Error("this event is not in this file");
      const facts = [
        ["rank", String(asked.rank)], ["start", exactTime(read.start[at])],
        ["duration", exactTime(read.dur[at])],
      ];
      const found = flow(asked);
      return { name: read.names[read.name[at]], start: read.start[at], dur: read.dur[at],
        facts: found ? [...facts, ...found.facts] : facts, args: [], launch: null };
    },
    search: (asked) => searchBlock(read, asked),
  };
  return {
    async ask(method, params) {
      return answers[method](params);
    },
  };
}

function findRow(block, rank, row) {
  for (const lane of block.ranks.get(rank)?.lanes ?? []) {
    if (lane.kind === "time" || lane.kind === "steps") continue;
    for (const { first, count } of lane.rows) {
      for (let i = first; i < first + count; i++) if (block.row[i] === row) return i;
    }
  }
  return -1;
}

async function searchBlock(block, { text, regexp }) {
  const wanted = text.toLowerCase();
  const numbers = regexp
    ? await matchInWorker(block.names, text)
    : block.names.flatMap((name, i) => (name.toLowerCase().includes(wanted) ? [i] : []));
  const mask = new Uint8Array(block.names.length);
  for (const i of numbers) mask[i] = 1;
  const hits = [];
  for (const rank of block.ranks.values()) {
    for (const lane of rank.lanes) {
      if (lane.kind === "time" || lane.kind === "steps") continue;
      for (const { first, count } of lane.rows) {
        for (let i = first; i < first + count; i++) {
          if (!mask[block.name[i]]) continue;
          hits.push([rank.rank, block.row[i], block.start[i], block.dur[i]]);
        }
      }
    }
  }
  hits.sort((a, b) => a[2] - b[2] || a[0] - b[0] || a[1] - b[1]);
  const names = numbers.map((i) => block.names[i]);
  return { total: hits.length, hits: hits.slice(0, 5000), names };
}

/** Match in a worker that is ended when a pattern takes too long. */
function matchInWorker(names, pattern) {
  new RegExp(pattern, "i"); // says what is wrong with it, here
  const code = `onmessage=({data:[names,p]})=>{const r=new RegExp(p,"i");
    postMessage(names.flatMap((n,i)=>r.test(n)?[i]:[]))}`;
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const worker = new Worker(url);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error("this pattern takes too long")), 1500);
    worker.onmessage = ({ data }) => { clearTimeout(timer); resolve(data); };
    worker.onerror = () => {
      clearTimeout(timer);
      reject(new Error("patterns cannot be used here"));
    };
    worker.postMessage([names, pattern]);
  }).finally(() => { worker.terminate(); URL.revokeObjectURL(url); });
}

// -- words ----------------------------------------------------------------------------------------

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

/** A time with all its digits, in the unit that suits it. */
export function exactTime(ns) {
  if (ns === null || ns === undefined) return "not known";
  const [unit, size] = UNITS.find(([, s]) => Math.abs(ns) >= s) ?? UNITS[3];
  const digits = Math.round(Math.log10(size));
  const text = (ns / size).toFixed(digits);
  return `${text} ${unit}`;
}

/** A time to four figures. */
export function shortTime(ns) {
  const [unit, size] = UNITS.find(([, s]) => Math.abs(ns) >= s) ?? UNITS[3];
  const value = ns / size;
  const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.max(Math.abs(value), 1))));
  return `${value.toFixed(unit === "ns" ? 0 : digits)} ${unit}`;
}

function tickStep(span, count) {
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10);
}

function tickText(ns, step) {
  const [unit, size] = UNITS.find(([, s]) => step >= s || (s === 1e6 && step >= 1e3)) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(ns / size).toFixed(digits)} ${unit}`;
}

// -- elements -------------------------------------------------------------------------------------

/** An element with attributes (functions become listeners) and children; texts stay texts. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== undefined && value !== null && value !== false) {
      element.setAttribute(key, value === true ? "" : String(value));
    }
  }
  element.append(...children);
  return element;
}

const STYLE = `
:host{display:block;height:100%;min-height:260px}
*{box-sizing:border-box}
.tk{display:flex;flex-direction:column;height:100%;background:var(--paper);color:var(--ink);
 font:12px/1.35 system-ui,"Segoe UI",Roboto,sans-serif;font-variant-numeric:tabular-nums;
 border:1px solid var(--line);border-radius:6px;overflow:hidden}
.bar,.legend{display:flex;flex-wrap:wrap;gap:4px 8px;align-items:center;padding:5px 8px;
 border-bottom:1px solid var(--line);background:var(--panel)}
.legend{gap:2px 14px;padding:3px 8px;color:var(--faint);min-height:23px}
.legend span{display:inline-flex;align-items:center;gap:5px;white-space:nowrap}
.legend i{width:11px;height:11px;border-radius:2px;display:inline-block}
.bar .grow{flex:1}
.told{color:var(--faint);min-width:9ch}
button,input[type=search]{font:inherit;color:inherit;background:var(--paper);
 border:1px solid var(--line);border-radius:4px;padding:2px 8px;min-height:24px}
button{cursor:pointer}
button:hover{border-color:var(--faint)}
button[aria-pressed=true]{background:var(--focus);color:var(--paper);border-color:var(--focus)}
input[type=search]{width:22ch}
label.check{display:inline-flex;gap:4px;align-items:center}
:focus-visible{outline:2px solid var(--focus);outline-offset:1px}
canvas{display:block}
canvas:focus-visible{outline-offset:-2px}
.mini{height:38px;cursor:crosshair;border-bottom:1px solid var(--line);touch-action:none}
.mini,.ruler{margin-left:${LABEL_PX}px}
.ruler{height:22px;border-bottom:1px solid var(--line)}
.heads{position:relative}
.heads .note{position:absolute;left:0;top:0;width:${LABEL_PX}px;height:100%;padding:4px 8px;
 color:var(--faint);overflow:hidden}
.scroll{flex:1;overflow-x:hidden;overflow-y:auto;position:relative;min-height:60px;
 scrollbar-gutter:stable}
.body{position:relative;display:grid;grid-template-columns:${LABEL_PX}px minmax(0,1fr);
 min-height:100%}
.labels{position:relative;border-right:1px solid var(--line);background:var(--panel);
 overflow:hidden}
.labels>*{position:absolute;left:0;width:100%;overflow:hidden;text-overflow:ellipsis;
 white-space:nowrap;text-align:left;padding:0 6px 0 22px;color:var(--faint);border:0;
 background:none;border-radius:0;min-height:0}
.labels>button.rank{padding-left:6px;color:var(--ink);font-weight:600;background:var(--panel);
 border-top:1px solid var(--line)}
.labels>button.lane{padding-left:8px}
.labels .mark{display:inline-block;width:14px;color:var(--faint)}
.labels>:focus-visible{outline-offset:-2px}
.plot{position:sticky;top:0;width:100%;cursor:default;touch-action:none;align-self:start}
.plot.panning{cursor:grabbing}
.below{border-top:1px solid var(--line);height:150px;overflow:auto;background:var(--panel);
 padding:6px 10px;display:flex;gap:24px;flex:none}
.tk.with-table .below{height:96px}
.below h3{margin:0 0 4px;font-size:12px;overflow-wrap:anywhere}
.below section{flex:1 1 0;min-width:230px;max-width:760px}
.below table,.twin table{border-collapse:collapse}
.below td,.twin td,.twin th{padding:1px 12px 1px 0;vertical-align:top;text-align:left;
 overflow-wrap:anywhere}
.below td:first-child{color:var(--faint);white-space:nowrap}
.faint{color:var(--faint)}
.twin{border-top:1px solid var(--line);max-height:260px;overflow:auto;padding:6px 10px;flex:none}
.twin caption{text-align:left;padding-bottom:4px;color:var(--faint)}
.twin td.n,.twin th.n{text-align:right;white-space:nowrap}
.twin td button{border:0;background:none;padding:0;min-height:0;text-decoration:underline dotted;
 text-align:left;overflow-wrap:anywhere}
.tip{position:absolute;pointer-events:none;z-index:3;background:var(--paper);color:var(--ink);
 border:1px solid var(--faint);border-radius:4px;padding:3px 7px;max-width:460px;
 box-shadow:0 2px 8px rgb(0 0 0/.25);overflow-wrap:anywhere}
.tip b{font-weight:600}
dialog{color:var(--ink);background:var(--paper);border:1px solid var(--faint);border-radius:8px;
 max-width:560px;padding:14px 18px}
dialog::backdrop{background:rgb(0 0 0/.35)}
dialog td{padding:2px 14px 2px 0;vertical-align:top}
kbd{font:11px/1.4 ui-monospace,Consolas,monospace;border:1px solid var(--line);border-radius:3px;
 padding:0 4px;background:var(--panel);white-space:nowrap}
.error{color:var(--hit)}
.sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
`;

const KEYS = [
  ["W S, wheel, pinch", "zoom in and out, at the cursor"],
  ["A D, drag", "move left and right"],
  ["F", "fit what is selected or measured; again: everything"],
  ["0", "fit everything"],
  ["← →", "previous, next event of the row"],
  ["↑ ↓", "row above, below"],
  ["Page Up, Page Down", "scroll the lanes"],
  ["/", "search; Enter and Shift+Enter go to the next and previous hit"],
  [". ,", "next, previous hit"],
  ["Shift+drag, M", "measure a stretch; M measures the selected event"],
  ["Enter", "read the details of the selected event"],
  ["C", "open or close the rank of the selected event"],
  ["T", "show what is in view as a table"],
  ["Esc", "drop the measure, then the selection, then the search"],
  ["?", "this help"],
];

// -- the timeline ---------------------------------------------------------------------------------

/**
 * Draw a timeline into an element.
 *
 * @param {HTMLElement} element  what it fills; give it a height
 * @param {{ask: Function}} source  answers questions, see `httpSource`
 * @param {object} options  `t0`, `t1` (ns): what is shown first; `selected`: {rank, row}; `search`:
 *   text; `theme`: "light", "dark" or "auto"; `wheel`: "zoom", or "focus" to zoom only while the
 *   timeline has the focus; `onChange(state)`: called when the view or the selection settles
 * @returns the controller: `ready` (a promise), `view(t0, t1)`, `fit()`, `select(rank, row)`,
 *   `search(text, regexp)`, `state()`, `setTheme(theme)`, `draw()` (its milliseconds), `destroy()`
 */
export function mount(element, source, options = {}) {
  const timeline = new Timeline(element, source, options);
  return timeline.controller();
}

class Timeline {
  constructor(element, source, options) {
    this.element = element;
    this.source = source;
    this.options = options;
    this.ranks = [];
    this.items = [];
    this.t0 = 0;
    this.t1 = 1;
    this.selected = null;
    this.hover = null;
    this.measure = null;
    this.flow = null;
    this.found = null;
    this.hitAt = -1;
    this.hitNames = new Set();
    this.asked = 0;
    this.abort = new AbortController();
    this.build();
    this.ready = this.open();
    this.ready.catch(() => {});
  }

  controller() {
    return {
      ready: this.ready,
      view: (t0, t1) => this.look(t0, t1),
      fit: () => this.look(this.first, this.last),
      select: (rank, row) => this.goTo({ rank, row }),
      search: (text, regexp = false) => this.search(text, regexp),
      state: () => this.state(),
      setTheme: (theme) => this.setTheme(theme),
      draw: () => this.draw(),
      settled: () => this.settled(),
      destroy: () => this.destroy(),
    };
  }

  // -- the frame around it

  build() {
    const root = this.element.shadowRoot ?? this.element.attachShadow({ mode: "open" });
    root.replaceChildren();
    this.root = root;
    this.input = make("input", {
      type: "search", placeholder: "search (/)", "aria-label": "search events by name",
      keydown: (e) => this.searchKey(e), input: () => this.searchSoon(),
    });
    this.regexp = make("input", { type: "checkbox", change: () => this.searchSoon() });
    this.told = make("span", { class: "told", role: "status" });
    this.measured = make("span", { class: "told", role: "status" });
    const button = (text, title, act) =>
      make("button", { type: "button", title, click: act }, text);
    this.tableButton = make("button", {
      type: "button", "aria-pressed": "false", title: "what is in view as a table (T)",
      click: () => this.toggleTable(),
    }, "Table");
    const bar = make("div", { class: "bar", role: "toolbar", "aria-label": "timeline" },
      button("Fit", "fit the selection, or everything (F)", () => this.fitKey()),
      button("−", "zoom out (S)", () => this.zoom(1 / ZOOM_STEP)),
      button("+", "zoom in (W)", () => this.zoom(ZOOM_STEP)),
      this.input, make("label", { class: "check", title: "regular expression" }, this.regexp, ".*"),
      button("‹", "previous hit (,)", () => this.nextHit(-1)),
      button("›", "next hit (.)", () => this.nextHit(1)),
      this.told, make("span", { class: "grow" }), this.measured, this.tableButton,
      button("?", "keys", () => this.help.showModal()));
    this.legend = make("div", { class: "legend" });
    this.note = make("div", { class: "note" });
    this.mini = make("canvas", { class: "mini", "aria-hidden": "true" });
    this.ruler = make("canvas", { class: "ruler", "aria-hidden": "true" });
    this.heads = make("div", { class: "heads" }, this.note, this.mini, this.ruler);
    this.plot = make("canvas", {
      class: "plot", tabindex: "0", role: "application",
      "aria-label": "timeline; press ? for its keys, T for a table of what is in view",
    });
    this.labels = make("div", { class: "labels" });
    this.body = make("div", { class: "body" }, this.labels, this.plot);
    this.scroll = make("div", { class: "scroll", tabindex: "-1" }, this.body);
    this.below = make("div", { class: "below", tabindex: "-1", "aria-label": "details" });
    this.twin = make("div", { class: "twin", hidden: true, tabindex: "0", "aria-label": "table" });
    this.tip = make("div", { class: "tip", hidden: true });
    this.spoken = make("div", { class: "sr", "aria-live": "polite" });
    this.help = make("dialog", { "aria-label": "keys" },
      make("table", {}, ...KEYS.map(([key, what]) => make("tr", {},
        make("td", {}, make("kbd", {}, key)), make("td", {}, what)))),
      make("form", { method: "dialog" }, make("button", {}, "Close")));
    this.box = make("div", { class: "tk" }, bar, this.legend, this.heads, this.scroll, this.below,
      this.twin, this.tip, this.spoken, this.help);
    root.append(this.box);
    this.setTheme(this.options.theme ?? "auto");
    this.tellNothing();
    this.listen();
  }

  setTheme(theme) {
    this.theme = theme;
    const shown = theme === "auto" ? themeOfPage() : theme;
    if (shown === "auto") delete this.box.dataset.theme;
    else this.box.dataset.theme = shown;
    this.paint();
  }

  /** Make the style sheet; colours of the page (`--tracekit-…`) go before ours. */
  styled(paints) {
    const rule = (which, at) => `${which}{${paints.map((p) =>
      `--${p[0]}:var(--tracekit-${p[0]},${p[at]})`).join(";")}}`;
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(`${STYLE}${rule(".tk", 1)}
      @media (prefers-color-scheme:dark){${rule('.tk:not([data-theme="light"])', 2)}}
      ${rule('.tk[data-theme="dark"]', 2)}`);
    this.root.adoptedStyleSheets = [sheet];
  }

  /** Read the colours in force. */
  paint() {
    if (!this.outline) return;
    const style = getComputedStyle(this.box);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim() || "#888888";
    this.colours = this.outline.roles.map((r) => colour(r.role));
    this.words = this.outline.roles.map((r) => r.label);
    this.hatched = this.outline.roles.map((r) => r.hatched);
    this.rgb = this.colours.map(rgbOf);
    const isPale = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140;
    this.inks = this.rgb.map((rgb) => (isPale(rgb) ? "#111" : "#fff"));
    this.ground = {};
    for (const key of ["paper", "panel", "ink", "faint", "line", "focus", "hit"]) {
      this.ground[key] = colour(key);
    }
    this.lines = hatching(this.ratio());
    this.tellLegend();
    this.miniStale = true;
    this.drawSoon();
  }

  listen() {
    const { signal } = this.abort;
    const on = (target, kind, act, more = {}) =>
      target.addEventListener(kind, act, { signal, ...more });
    this.pointers(on);
    on(this.plot, "keydown", (e) => this.key(e));
    on(this.plot, "focus", () => this.drawSoon());
    on(this.plot, "blur", () => this.drawSoon());
    on(this.scroll, "scroll", () => { this.drawSoon(); this.settleSoon(); });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    on(dark, "change", () => this.paint());
    this.sizes = new ResizeObserver(() => {
      this.miniStale = true;
      this.drawSoon();
      this.settleSoon();
    });
    this.sizes.observe(this.scroll);
    this.themes = new MutationObserver(() => this.setTheme(this.theme));
    const watched = { attributes: true, attributeFilter: THEME_ATTRIBUTES };
    this.themes.observe(document.documentElement, watched);
    this.themes.observe(document.body, watched);
  }

  destroy() {
    this.abort.abort();
    this.sizes.disconnect();
    this.themes.disconnect();
    clearTimeout(this.settling);
    clearTimeout(this.searching);
    cancelAnimationFrame(this.frame);
    for (const rank of this.ranks) rank.loading?.abort();
    this.source.close?.();
    this.root.replaceChildren();
  }

  // -- what there is

  async open() {
    try {
      this.outline = await this.source.ask("outline", {}, this.abort.signal);
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
      throw error;
    }
    this.styled(this.outline.paints);
    this.first = this.outline.t0;
    this.last = this.outline.t1;
    const margin = 0.01 * (this.last - this.first);
    this.first -= margin;
    this.last += margin;
    const few = this.outline.ranks.length <= 4;
    this.ranks = this.outline.ranks.map((told, i) => ({
      ...told, open: few || i === 0, opened: new Set(), summary: null, whole: null, part: null,
      loading: null, wanted: null, error: "",
    }));
    this.byRank = new Map(this.ranks.map((r) => [r.rank, r]));
    this.t0 = this.options.t0 ?? this.first;
    this.t1 = this.options.t1 ?? this.last;
    if (!(this.t1 > this.t0)) [this.t0, this.t1] = [this.first, this.last];
    this.paint();
    this.tellNote();
    this.layOut();
    this.draw();
    await this.load();
    const { selected, search } = this.options;
    if (selected && this.byRank.has(selected.rank)) await this.goTo(selected);
    if (search) {
      this.input.value = search;
      await this.search(search, false);
    }
  }

  fail(error) {
    if (!this.outline) this.styled([["paper", "#fff", "#14171c"], ["panel", "#f5f6f8", "#1c2027"],
      ["ink", "#1b1f24", "#e6e9ed"], ["faint", "#5b636d", "#9aa3ae"],
      ["line", "#d5d9de", "#343a43"], ["focus", "#0b62d6", "#7ab2ff"],
      ["hit", "#c2185b", "#ff7aa8"]]);
    this.below.replaceChildren(make("p", { class: "error", role: "alert" },
      `the timeline cannot be shown: ${error.message}`));
  }

  tellNote() {
    const unknown = this.ranks.filter((r) => r.clock === "unknown").map((r) => r.rank);
    const parts = [`${this.ranks.length} rank${this.ranks.length > 1 ? "s" : ""}`];
    if (this.outline.thinned) parts.push(this.outline.thinned);
    if (unknown.length && this.ranks.length > 1) {
      const more = unknown.length > 6 ? ", …" : "";
      parts.push(`clock not compared: ${unknown.slice(0, 6).join(", ")}${more}`);
    }
    this.note.textContent = parts.join(" · ");
    this.note.title = parts.join(" · ");
  }

  tellLegend() {
    const shown = new Set();
    for (const rank of this.ranks) {
      for (const block of [rank.summary, rank.whole]) {
        for (const role of block?.roles ?? []) shown.add(role);
      }
    }
    this.legend.replaceChildren(...[...shown].sort((a, b) => a - b).map((role) => {
      const swatch = make("i");
      const lines = "repeating-linear-gradient(135deg,transparent 0 2px,rgb(0 0 0/.4) 2px 4px),";
      swatch.style.background = (this.hatched[role] ? lines : "") + this.colours[role];
      return make("span", {}, swatch, this.words[role]);
    }));
  }

  // -- fetching

  /** What is fetched for a rank: its summary while it is closed, else all its lanes. */
  async fetchRank(rank, params, into) {
    rank.loading?.abort();
    const abort = new AbortController();
    rank.loading = abort;
    rank.wanted = into;
    try {
      const asked = { ranks: String(rank.rank), ...params };
      const data = await this.source.ask("block", asked, abort.signal);
      if (abort.signal.aborted) return;
      const block = data.ranks instanceof Map ? data : readBlock(data);
      rank[into] = block.ranks.get(rank.rank);
      rank[into].roles = rolesOf(rank[into]);
      rank.error = "";
    } catch (error) {
      if (error.name === "AbortError" || abort.signal.aborted) return;
      rank.error = error.message;
    } finally {
      if (rank.loading === abort) rank.loading = null;
    }
    this.arrived();
  }

  arrived() {
    this.miniStale = true;
    this.tellLegend();
    this.layOut();
    this.drawSoon();
    this.tableSoon();
  }

  /** Fetch what is missing of the ranks in sight, then of the others; two at a time. */
  async load() {
    if (!this.outline) return undefined;
    if (this.isLoading) {
      this.loadAgain = true;
      return this.isLoading;
    }
    this.isLoading = this.loadAll().finally(() => { this.isLoading = null; });
    return this.isLoading;
  }

  async loadAll() {
    do {
      this.loadAgain = false;
      const inSight = new Set(this.inSight());
      const order = [...inSight, ...this.ranks.filter((r) => !inSight.has(r))];
      const missing = order.filter((r) => !r.error && (r.open ? !r.whole : !r.summary && !r.whole));
      let at = 0;
      const next = async () => {
        while (at < missing.length && !this.loadAgain && !this.abort.signal.aborted) {
          await this.fetchWhole(missing[at++]);
        }
      };
      await Promise.all([next(), next()]);
      if (!this.loadAgain) await this.refine();
    } while (this.loadAgain && !this.abort.signal.aborted);
  }

  fetchWhole(rank) {
    const pixels = Math.round(Math.max(this.width() * 2, 2000));
    const span = { t0: this.outline.t0, t1: this.outline.t1 };
    if (!rank.open) {
      return this.fetchRank(rank, { ...span, pixels, limit: 20_000, summary: true }, "summary");
    }
    const held = this.ranks.reduce((n, r) => n + (r.whole?.block.start.length ?? 0), 0);
    const limit = held + rank.numEvents > HELD_EVENTS ? PART_LIMIT : WHOLE_LIMIT;
    return this.fetchRank(rank, { ...span, pixels, limit }, "whole");
  }

  /** Where a rank in sight is shaded more coarsely than the screen shows, fetch this stretch. */
  async refine() {
    if (this.outline.fixed) return;
    const span = this.t1 - this.t0;
    const wanted = this.inSight().filter((rank) => {
      const best = this.blockOf(rank);
      if (!best || best.numShaded === 0 || rank.error) return false;
      const isFine = best.block.binNs <= (1.3 * span) / Math.max(this.width(), 1);
      return !(isFine && best.block.t0 <= this.t0 && best.block.t1 >= this.t1);
    });
    for (const rank of wanted) {
      const params = {
        t0: Math.floor(this.t0 - span / 2), t1: Math.ceil(this.t1 + span / 2),
        pixels: Math.round(this.width() * 2), limit: PART_LIMIT, summary: !rank.open,
      };
      await this.fetchRank(rank, params, "part");
    }
  }

  inSight() {
    const top = this.scroll.scrollTop;
    const bottom = top + this.scroll.clientHeight;
    const seen = this.items.filter((i) => i.y < bottom && i.y + i.height > top).map((i) => i.rank);
    return [...new Set(seen)];
  }

  /** The finest block of a rank that holds all that is in view, else the one of the whole run. */
  blockOf(rank) {
    const whole = rank.open ? rank.whole : rank.whole ?? rank.summary;
    const { part } = rank;
    if (!part || !whole) return whole ?? rank.summary;
    const isFit = part.block.t0 <= this.t0 && part.block.t1 >= this.t1 &&
      part.lanes.length >= (rank.open ? whole.lanes.length : 1);
    return isFit && part.block.binNs < whole.block.binNs ? part : whole;
  }

  settled() {
    return new Promise((resolve) => {
      const look = () => (this.isLoading || this.settling || this.frame || this.asked
        ? setTimeout(look, 15) : resolve());
      look();
    });
  }

  settleSoon() {
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.settling = null;
      this.load();
      this.tableSoon();
      this.options.onChange?.(this.state());
    }, SETTLE_MS);
  }

  state() {
    const { selected, measure } = this;
    return {
      t0: this.t0, t1: this.t1,
      selected: selected && selected.row >= 0 ? { rank: selected.rank, row: selected.row } : null,
      measure: measure ? { ...measure } : null,
      search: this.found ? this.found.text : "",
    };
  }

  // -- where everything lies

  /** Where each row lies, and the labels beside them. */
  layOut() {
    this.items = [];
    const labels = [];
    let y = 0;
    const put = (element, height) => {
      element.style.top = `${y}px`;
      element.style.height = `${height}px`;
      element.style.lineHeight = `${height}px`;
      labels.push(element);
    };
    for (const rank of this.ranks) {
      const lanes = (rank.whole ?? rank.summary)?.lanes ?? [];
      const time = lanes.findIndex((l) => l.kind === "time");
      put(this.rankLabel(rank), HEAD_PX);
      this.items.push({ rank, lane: time, row: 0, y, height: HEAD_PX, head: true });
      y += HEAD_PX;
      if (!rank.open) continue;
      lanes.forEach((lane, number) => {
        if (lane.kind === "time" || !lane.numEvents) return;
        const height = lane.kind === "stream" ? STREAM_PX : THREAD_PX;
        const isOpen = rank.opened.has(number);
        const shown = isOpen ? lane.rows.length : Math.min(lane.rows.length, COMPACT_ROWS);
        put(this.laneLabel(rank, lane, number, isOpen), height);
        for (let row = 0; row < shown; row++) {
          this.items.push({ rank, lane: number, row, y, height });
          y += height;
        }
        y += GAP_PX;
      });
      y += GAP_PX;
    }
    const focused = this.root.activeElement?.dataset?.key;
    this.labels.replaceChildren(...labels);
    if (focused) labels.find((l) => l.dataset.key === focused)?.focus();
    this.height = y + 8;
    this.body.style.height = `${this.height}px`;
  }

  rankLabel(rank) {
    const state = rank.error ? ` — ${rank.error}` : (rank.summary || rank.whole) ? "" : " …";
    const clock = rank.clock === "unknown" && this.ranks.length > 1 ? " (clock?)" : "";
    const notes = [rank.title, clock && "clock not compared", rank.error].filter(Boolean);
    return make("button", {
      class: "rank", type: "button", "aria-expanded": String(rank.open),
      "data-key": `r${rank.rank}`, title: notes.join(": "), click: () => this.toggleRank(rank),
    }, make("span", { class: "mark", "aria-hidden": "true" }, rank.open ? "▾" : "▸"),
    `${rank.title}${clock}${state}`);
  }

  laneLabel(rank, lane, number, isOpen) {
    const title = `${lane.title}: ${lane.numEvents.toLocaleString("en")} events`;
    if (lane.rows.length <= COMPACT_ROWS) return make("div", { title }, lane.title);
    const hidden = lane.rows.length - COMPACT_ROWS;
    return make("button", {
      class: "lane", type: "button", "aria-expanded": String(isOpen), title: isOpen ? title
        : `${title}; ${hidden} deeper rows are hidden`, "data-key": `l${rank.rank}.${number}`,
      click: () => this.toggleLane(rank, number),
    }, make("span", { class: "mark", "aria-hidden": "true" }, isOpen ? "▾" : "▸"),
    lane.title + (isOpen ? "" : ` +${hidden}`));
  }

  toggleRank(rank) {
    rank.open = !rank.open;
    rank.error = "";
    rank.part = null;
    this.layOut();
    this.drawSoon();
    this.settleSoon();
  }

  toggleLane(rank, number) {
    if (!rank.opened.delete(number)) rank.opened.add(number);
    this.layOut();
    this.drawSoon();
    this.tableSoon();
  }

  // -- looking

  width() { return this.plot.clientWidth; }
  ratio() { return Math.min(window.devicePixelRatio || 1, 3); }
  timeAt(x) { return this.t0 + (x / this.width()) * (this.t1 - this.t0); }
  xOf(t) { return ((t - this.t0) / (this.t1 - this.t0)) * this.width(); }

  look(t0, t1) {
    const whole = this.last - this.first;
    const span = Math.min(Math.max(t1 - t0, 50), whole * 1.5);
    const middle = (t0 + t1) / 2;
    const edge = Math.min(Math.max(middle, this.first), this.last);
    this.t0 = edge - span / 2;
    this.t1 = edge + span / 2;
    this.drawSoon();
    this.settleSoon();
  }

  zoom(factor, x = this.width() / 2) {
    const at = this.timeAt(x);
    const span = (this.t1 - this.t0) / factor;
    const t0 = at - (x / this.width()) * span;
    this.look(t0, t0 + span);
  }

  pan(fraction) {
    const by = fraction * (this.t1 - this.t0);
    this.look(this.t0 + by, this.t1 + by);
  }

  fitKey() {
    const { measure, selected } = this;
    const wanted = measure ? [measure.t0, measure.t1]
      : selected ? [selected.start, selected.start + Math.max(selected.dur, 20)] : null;
    if (wanted) {
      const margin = 0.1 * (wanted[1] - wanted[0]);
      const [t0, t1] = [wanted[0] - margin, wanted[1] + margin];
      const isThere = Math.abs(this.t0 - t0) + Math.abs(this.t1 - t1) < 0.02 * (t1 - t0) + 100;
      if (!isThere) return this.look(t0, t1);
    }
    return this.look(this.first, this.last);
  }

  showRow(item) {
    const top = this.scroll.scrollTop;
    const bottom = top + this.scroll.clientHeight;
    if (item.y < top) this.scroll.scrollTop = Math.max(0, item.y - HEAD_PX);
    else if (item.y + item.height > bottom) {
      this.scroll.scrollTop = item.y + item.height - this.scroll.clientHeight + HEAD_PX;
    }
  }

  // -- the pointer

  pointers(on) {
    const down = new Map();
    let drag = null;
    const place = (e) => {
      const box = this.plot.getBoundingClientRect();
      return [e.clientX - box.left, e.clientY - box.top];
    };
    on(this.plot, "pointerdown", (e) => {
      if (e.button !== 0) return;
      this.plot.setPointerCapture(e.pointerId);
      this.plot.focus({ preventScroll: true });
      const [x, y] = place(e);
      down.set(e.pointerId, [x, y]);
      if (down.size === 2) {
        drag = { kind: "pinch", gap: gapOf(down), span: this.t1 - this.t0 };
      } else {
        const kind = e.shiftKey ? "measure" : "pan";
        drag = { kind, x, y, t0: this.t0, t1: this.t1, top: this.scroll.scrollTop, moved: false };
      }
      this.tip.hidden = true;
    });
    on(this.plot, "pointermove", (e) => {
      const [x, y] = place(e);
      if (!down.has(e.pointerId)) return this.hoverAt(x, y, e);
      down.set(e.pointerId, [x, y]);
      return this.drag(drag, x, y, down);
    });
    const up = (e) => {
      if (!down.delete(e.pointerId) || !drag) return;
      const [x, y] = place(e);
      this.plot.classList.remove("panning");
      if (!drag.moved && drag.kind !== "pinch" && e.type === "pointerup") this.clickAt(x, y);
      drag = null;
    };
    on(this.plot, "pointerup", up);
    on(this.plot, "pointercancel", up);
    on(this.plot, "pointerleave", () => {
      this.tip.hidden = true;
      this.hover = null;
      this.drawSoon();
    });
    on(this.plot, "dblclick", () => this.fitKey());
    on(this.plot, "wheel", (e) => this.wheel(e), { passive: false });
    this.miniPointers(on);
  }

  drag(drag, x, y, down) {
    if (!drag) return;
    if (drag.kind === "pinch") {
      const gap = gapOf(down);
      const at = [...down.values()].reduce((sum, p) => sum + p[0], 0) / down.size;
      const factor = (this.t1 - this.t0) / (drag.span * (drag.gap / Math.max(gap, 1)));
      this.zoom(factor, at);
      return;
    }
    if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
    drag.moved = true;
    if (drag.kind === "measure") {
      const [a, b] = [this.snap(drag.x), this.snap(x)];
      this.setMeasure({ t0: Math.min(a, b), t1: Math.max(a, b) });
    } else {
      this.plot.classList.add("panning");
      const by = ((drag.x - x) / this.width()) * (drag.t1 - drag.t0);
      this.scroll.scrollTop = drag.top + drag.y - y;
      this.look(drag.t0 + by, drag.t1 + by);
    }
  }

  snap(x) { return Math.round(this.timeAt(x)); }

  wheel(e) {
    const hasFocus = this.root.activeElement === this.plot;
    if (this.options.wheel === "focus" && !hasFocus && !e.ctrlKey) return;
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 16 : e.deltaMode === 2 ? 400 : 1;
    const [dx, dy] = [e.deltaX * unit, e.deltaY * unit];
    if (e.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      this.pan(((e.shiftKey && !dx ? dy : dx) / this.width()));
    } else {
      const x = e.clientX - this.plot.getBoundingClientRect().left;
      this.zoom(Math.exp(-Math.max(-300, Math.min(300, dy)) * (e.ctrlKey ? 0.01 : 0.0016)), x);
    }
  }

  miniPointers(on) {
    let isDown = false;
    const go = (e) => {
      const box = this.mini.getBoundingClientRect();
      const at = this.first + ((e.clientX - box.left) / box.width) * (this.last - this.first);
      const span = this.t1 - this.t0;
      this.look(at - span / 2, at + span / 2);
    };
    on(this.mini, "pointerdown", (e) => {
      isDown = true;
      this.mini.setPointerCapture(e.pointerId);
      go(e);
    });
    on(this.mini, "pointermove", (e) => { if (isDown) go(e); });
    on(this.mini, "pointerup", () => { isDown = false; });
    on(this.mini, "pointercancel", () => { isDown = false; });
  }

  /** The event at a place of the plot, or null. */
  eventAt(x, y) {
    const at = y + this.scroll.scrollTop;
    const item = this.items.find((i) => i.y <= at && at < i.y + i.height);
    return item ? this.eventIn(item, this.timeAt(x), (this.t1 - this.t0) / this.width()) : null;
  }

  /** The event of a row at a time, give or take two pixels; of several there, the longest. */
  eventIn(item, t, perPx) {
    const held = this.blockOf(item.rank);
    const row = held?.lanes[item.lane]?.rows[item.row];
    if (!row) return null;
    const { block } = held;
    let best = -1;
    for (let i = firstAfter(block, row, t - 2 * perPx); i < row.first + row.count; i++) {
      if (block.start[i] > t + 2 * perPx) break;
      const holds = block.start[i] <= t && block.start[i] + block.dur[i] >= t;
      if (best < 0 || block.dur[i] > block.dur[best] || (holds && block.dur[i] >= perPx)) best = i;
      if (holds && block.dur[i] > 4 * perPx) break;
    }
    return best < 0 ? null : this.toldOf(item, held, best);
  }

  toldOf(item, held, i) {
    const { block } = held;
    return {
      rank: item.rank.rank, row: block.row[i], lane: item.lane, laneRow: item.row,
      start: block.start[i], dur: block.dur[i], name: block.names[block.name[i]],
      role: block.role[i], kind: held.lanes[item.lane].kind, title: held.lanes[item.lane].title,
    };
  }

  hoverAt(x, y, e) {
    const found = this.eventAt(x, y);
    const isNew = found?.start !== this.hover?.start || found?.lane !== this.hover?.lane ||
      found?.rank !== this.hover?.rank || found?.laneRow !== this.hover?.laneRow;
    this.hover = found;
    if (isNew) this.drawSoon();
    this.tip.hidden = !found;
    if (!found) return;
    if (isNew) {
      this.tip.replaceChildren(make("b", {}, found.name), make("br"),
        `${this.words[found.role]} · ${exactTime(found.dur)} · at ${exactTime(found.start)}`);
    }
    const box = this.box.getBoundingClientRect();
    const [left, top] = [e.clientX - box.left + 14, e.clientY - box.top + 16];
    this.box.style.position = "relative";
    const room = box.width - this.tip.offsetWidth - 8;
    this.tip.style.left = `${Math.max(4, Math.min(left, room))}px`;
    const under = box.height - this.tip.offsetHeight - 8;
    this.tip.style.top = `${top > under ? top - this.tip.offsetHeight - 30 : top}px`;
  }

  clickAt(x, y) {
    const found = this.eventAt(x, y);
    if (found) return this.choose(found);
    this.selected = null;
    this.flow = null;
    this.tellNothing();
    this.drawSoon();
    return this.settleSoon();
  }

  // -- the keyboard

  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const acts = {
      w: () => this.zoom(ZOOM_STEP, this.focusX()),
      s: () => this.zoom(1 / ZOOM_STEP, this.focusX()),
      a: () => this.pan(-0.2), d: () => this.pan(0.2), f: () => this.fitKey(),
      0: () => this.look(this.first, this.last), "/": () => this.input.select(),
      ".": () => this.nextHit(1), ",": () => this.nextHit(-1), m: () => this.measureSelected(),
      t: () => this.toggleTable(), c: () => this.toggleSelectedRank(),
      "?": () => this.help.showModal(),
      arrowleft: () => this.step(-1), arrowright: () => this.step(1),
      arrowup: () => this.changeRow(-1), arrowdown: () => this.changeRow(1),
      pageup: () => this.scroll.scrollBy(0, -0.8 * this.scroll.clientHeight),
      pagedown: () => this.scroll.scrollBy(0, 0.8 * this.scroll.clientHeight),
      home: () => this.look(this.first, this.first + this.t1 - this.t0),
      end: () => this.look(this.last - this.t1 + this.t0, this.last),
      enter: () => this.below.focus(), escape: () => this.escape(),
    };
    const act = Object.hasOwn(acts, e.key.toLowerCase()) ? acts[e.key.toLowerCase()] : null;
    if (!act) return;
    e.preventDefault();
    e.stopPropagation();
    act();
  }

  focusX() {
    if (!this.selected) return this.width() / 2;
    const x = this.xOf(this.selected.start + this.selected.dur / 2);
    return x > 0 && x < this.width() ? x : this.width() / 2;
  }

  escape() {
    if (this.measure) this.setMeasure(null);
    else if (this.selected) {
      this.selected = null;
      this.flow = null;
      this.tellNothing();
    } else {
      this.input.value = "";
      this.search("", false);
    }
    this.drawSoon();
    this.settleSoon();
  }

  /** Select the previous or next event of the row. */
  step(by) {
    const place = this.placeOf(this.selected);
    if (!place) return this.pickFirst();
    const { held, row } = place;
    const i = place.index + by;
    if (i < row.first || i >= row.first + row.count) return undefined;
    return this.choose(this.toldOf(place.item, held, i), { keepInView: true });
  }

  changeRow(by) {
    const place = this.placeOf(this.selected);
    if (!place) return this.pickFirst();
    const t = this.selected.start + this.selected.dur / 2;
    let at = this.items.indexOf(place.item) + by;
    for (; at >= 0 && at < this.items.length; at += by) {
      const found = this.nearestIn(this.items[at], t);
      if (found) return this.choose(found, { keepInView: true });
    }
    return undefined;
  }

  nearestIn(item, t) {
    const held = this.blockOf(item.rank);
    const row = held?.lanes[item.lane]?.rows[item.row];
    if (!row || !row.count) return null;
    const { block } = held;
    let i = Math.min(firstAfter(block, row, t), row.first + row.count - 1);
    if (i > row.first && block.start[i] - t > t - block.start[i - 1] - block.dur[i - 1]) i -= 1;
    return this.toldOf(item, held, i);
  }

  pickFirst() {
    const middle = (this.t0 + this.t1) / 2;
    for (const item of this.items) {
      if (item.y + item.height <= this.scroll.scrollTop) continue;
      const found = this.nearestIn(item, middle);
      if (found) return this.choose(found, { keepInView: true });
    }
    return undefined;
  }

  toggleSelectedRank() {
    const rank = this.byRank.get(this.selected?.rank) ?? this.inSight()[0];
    if (rank) this.toggleRank(rank);
  }

  measureSelected() {
    const { selected } = this;
    if (selected) this.setMeasure({ t0: selected.start, t1: selected.start + selected.dur });
  }

  setMeasure(measure) {
    this.measure = measure;
    this.measured.textContent = measure ? `measured ${exactTime(measure.t1 - measure.t0)}` : "";
    this.drawSoon();
    this.settleSoon();
  }

  // -- selection

  /** Where a selected event lies now: its row on the screen and its index in the block; or null. */
  placeOf(event) {
    if (!event) return null;
    const rank = this.byRank.get(event.rank);
    const held = rank && this.blockOf(rank);
    if (!held) return null;
    const { block } = held;
    const isSame = (i) => i >= 0 && block.start[i] === event.start && block.row[i] === event.row;
    const look = (lane, r) => {
      const row = held.lanes[lane]?.rows[r];
      if (!row) return null;
      let i = firstAfter(block, row, event.start);
      while (i < row.first + row.count && block.start[i] <= event.start) {
        const isIt = isSame(i) && (event.row >= 0 || event.lane === lane);
        if (isIt) return { held, row, index: i, lane, r };
        i += 1;
      }
      return null;
    };
    let found = event.lane === undefined ? null : look(event.lane, event.laneRow);
    for (let lane = 0; !found && lane < held.lanes.length; lane++) {
      for (let r = 0; !found && r < held.lanes[lane].rows.length; r++) found = look(lane, r);
    }
    if (!found) return null;
    const item = this.itemOf(rank, found.lane, found.r);
    return { ...found, item: item ?? this.items.find((i) => i.rank === rank && i.head) };
  }

  /** A row as it lies on the screen; undefined where its lane or rank is closed. */
  itemOf(rank, lane, row) {
    return this.items.find((i) => i.rank === rank && i.lane === lane && i.row === row);
  }

  choose(event, { keepInView = false } = {}) {
    this.selected = event;
    this.flow = null;
    if (keepInView) {
      const end = event.start + event.dur;
      const span = this.t1 - this.t0;
      if (end < this.t0 || event.start > this.t1) {
        this.look(event.start - span / 2, event.start + span / 2);
      }
      const place = this.placeOf(event);
      if (place?.item) this.showRow(place.item);
    }
    this.spoken.textContent = [event.name, this.words[event.role], exactTime(event.dur),
      `at ${exactTime(event.start)}`, `rank ${event.rank}`, event.title].join(", ");
    this.tellEvent(event, null, null);
    this.drawSoon();
    this.settleSoon();
    return event.row >= 0 ? this.fetchDetails(event) : undefined;
  }

  async fetchDetails(event) {
    const asked = { rank: event.rank, row: event.row };
    this.asked += 1;
    try {
      const [told, flow] = await Promise.all([
        this.source.ask("event", asked, this.abort.signal),
        this.source.ask("flow", asked, this.abort.signal),
      ]);
      if (this.selected !== event) return;
      this.flow = flow;
      this.tellEvent(event, told, flow);
      this.drawSoon();
    } catch (error) {
      if (this.selected !== event || error.name === "AbortError") return;
      this.tellEvent(event, null, null, error);
    } finally {
      this.asked -= 1;
    }
  }

  /** Select an event by rank and row, wherever it is: open its rank, fetch, move there. */
  async goTo({ rank, row, start, dur }) {
    const held = this.byRank.get(rank);
    if (!held) return;
    if (!held.open) {
      held.open = true;
      this.layOut();
    }
    if (start === undefined) {
      this.asked += 1;
      try {
        ({ start, dur } = await this.source.ask("event", { rank, row }, this.abort.signal));
      } catch {
        return; // there is no such event: a link to another run, perhaps
      } finally {
        this.asked -= 1;
      }
    }
    const span = this.t1 - this.t0;
    const isSeen = start >= this.t0 && start + dur <= this.t1 && (dur / span) * this.width() > 6;
    if (!isSeen) {
      const wide = Math.min(Math.max(dur * 12, 2000), Math.max(span, dur * 3));
      this.look(start + dur / 2 - wide / 2, start + dur / 2 + wide / 2);
    }
    this.asked += 1;
    try {
      await this.load();
    } finally {
      this.asked -= 1;
    }
    const place = this.placeOf({ rank, row, start });
    if (!place) return;
    if (!this.itemOf(held, place.lane, place.r)) {
      held.opened.add(place.lane);
      this.layOut();
    }
    const there = this.placeOf({ rank, row, start });
    this.showRow(there.item);
    const found = { rank: held, lane: there.lane, row: there.r };
    await this.choose(this.toldOf(found, there.held, there.index));
  }

  tellNothing() {
    this.below.replaceChildren(make("p", { class: "faint" },
      "Click an event for its details. Drag moves, the wheel zooms, shift and drag measures, " +
      "/ searches, ? lists all keys."));
  }

  tellEvent(event, told, flow, error = null) {
    const facts = told?.facts ?? [["rank", String(event.rank)], ["start", exactTime(event.start)],
      ["duration", exactTime(event.dur)]];
    const head = [["counts as", this.words[event.role]], ["lane", event.title]];
    const rows = (pairs) => make("table", {}, ...pairs.map(([label, value]) =>
      make("tr", {}, make("td", {}, label), make("td", {}, value))));
    const parts = [make("section", {}, make("h3", {}, told?.name ?? event.name),
      rows([...head, ...facts]), error ? make("p", { class: "error" }, error.message) : "")];
    if (told?.launch) {
      const other = told.launch;
      parts[0].append(make("p", {}, `${other.label} `, make("button", {
        type: "button", click: () => this.goTo(other),
      }, other.name), ` at ${exactTime(other.start)}`));
    }
    if (told?.args.length) {
      parts.push(make("section", {}, make("h3", {}, "arguments"), rows(told.args)));
    }
    if (flow) parts.push(this.membersOf(flow));
    this.below.replaceChildren(...parts);
  }

  membersOf(flow) {
    const first = flow.members[0].start;
    const button = (m) =>
      make("button", { type: "button", click: () => this.goToMember(m) }, `rank ${m.rank}`);
    const lines = flow.members.map((m) => make("tr", {}, make("td", {}, button(m)),
      make("td", {}, `came ${exactTime(m.start - first)} after the first`),
      make("td", {}, m.wait === null ? "wait not known" : `waited ${exactTime(m.wait)}`)));
    const title = `the same collective on ${flow.members.length} ranks`;
    return make("section", {}, make("h3", {}, title), make("table", {}, ...lines));
  }

  async goToMember(member) {
    const rank = this.byRank.get(member.rank);
    if (!rank) return;
    rank.open = true;
    this.layOut();
    this.settleSoon();
    await this.load();
    const place = this.memberPlace(member);
    if (place?.index !== undefined) {
      this.showRow(place.item);
      const found = { rank, lane: place.lane, row: place.r };
      await this.choose(this.toldOf(found, place.held, place.index));
    }
  }

  /** Where a member of a collective is drawn: its row, else the head of its rank. */
  memberPlace(member) {
    const rank = this.byRank.get(member.rank);
    if (!rank) return null;
    const head = { item: this.items.find((i) => i.rank === rank && i.head) };
    const held = rank.open ? this.blockOf(rank) : null;
    if (!held) return head;
    for (let lane = 0; lane < held.lanes.length; lane++) {
      if (held.lanes[lane].kind === "time" || held.lanes[lane].kind === "steps") continue;
      for (let r = 0; r < held.lanes[lane].rows.length; r++) {
        const row = held.lanes[lane].rows[r];
        const { block } = held;
        let i = firstAfter(block, row, member.start);
        for (; i < row.first + row.count && block.start[i] <= member.start; i++) {
          const isComm = this.outline.roles[block.role[i]].role === "comm";
          if (isComm && block.start[i] === member.start) {
            const item = this.itemOf(rank, lane, r);
            return item ? { item, held, lane, r, index: i } : head;
          }
        }
      }
    }
    return head;
  }

  // -- search

  searchKey(e) {
    if (e.key === "Enter") {
      e.preventDefault();
      const isSame = this.found && this.found.text === this.input.value;
      if (isSame) this.nextHit(e.shiftKey ? -1 : 1);
      else this.search(this.input.value, this.regexp.checked).then(() => this.nextHit(1));
    } else if (e.key === "Escape") {
      e.preventDefault();
      this.plot.focus();
    }
    e.stopPropagation();
  }

  searchSoon() {
    clearTimeout(this.searching);
    this.searching = setTimeout(() => {
      this.searching = null;
      this.search(this.input.value, this.regexp.checked);
    }, 250);
  }

  async search(text, regexp) {
    clearTimeout(this.searching);
    this.searchAbort?.abort();
    this.hitAt = -1;
    this.found = null;
    this.hitNames = new Set();
    this.told.classList.remove("error");
    if (!text) {
      this.told.textContent = "";
      this.drawSoon();
      return;
    }
    this.told.textContent = "…";
    const abort = new AbortController();
    this.searchAbort = abort;
    this.asked += 1;
    try {
      const found = await this.source.ask("search", { text, regexp }, abort.signal);
      if (abort.signal.aborted) return;
      this.found = { ...found, text };
      this.hitNames = new Set(found.names);
      this.tellHits();
    } catch (error) {
      if (error.name === "AbortError" || abort.signal.aborted) return;
      this.told.textContent = error.message;
      this.told.classList.add("error");
    } finally {
      this.asked -= 1;
    }
    this.drawSoon();
    this.settleSoon();
  }

  tellHits() {
    const { total, hits } = this.found;
    const of = `${total.toLocaleString("en")} hit${total === 1 ? "" : "s"}`;
    const some = hits.length.toLocaleString("en");
    const cut = hits.length < total ? ` (first ${some} can be visited)` : "";
    const at = (this.hitAt + 1).toLocaleString("en");
    this.told.textContent = this.hitAt < 0 ? of + cut : `${at} of ${of}`;
  }

  /** Go to the next or previous hit, from where the view is at first. */
  nextHit(by) {
    const hits = this.found?.hits ?? [];
    if (!hits.length) return;
    if (this.hitAt < 0) {
      const from = this.selected ? this.selected.start : this.t0;
      const at = hits.findIndex((h) => h[2] >= from);
      this.hitAt = by > 0 ? (at < 0 ? 0 : at) : (at <= 0 ? hits.length - 1 : at - 1);
    } else {
      this.hitAt = (this.hitAt + by + hits.length) % hits.length;
    }
    const [rank, row, start, dur] = hits[this.hitAt];
    this.tellHits();
    this.goTo({ rank, row, start, dur });
  }

  // -- drawing

  drawSoon() {
    if (this.frame || !this.outline) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** Draw all now; the milliseconds it took. */
  draw() {
    if (!this.outline || !this.colours) return 0;
    const begun = performance.now();
    const height = this.scroll.clientHeight;
    this.plot.style.height = `${height}px`;
    this.ruler.style.width = `${this.width()}px`; // the scroll bar takes room beside the plot only
    this.mini.style.width = `${this.width()}px`;
    const context = sized(this.plot, this.width(), height, this.ratio());
    if (context) {
      this.drawRows(context, height);
      this.drawOver(context, height);
    }
    this.drawRuler();
    this.drawMini();
    return performance.now() - begun;
  }

  drawRows(context, height) {
    const ratio = this.ratio();
    const width = this.plot.width;
    const top = this.scroll.scrollTop;
    const { ground } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = ground.paper;
    context.fillRect(0, 0, width, this.plot.height);
    const seen = this.items.filter((i) => i.y < top + height && i.y + i.height > top);
    const shades = new Shades(width, seen.length, this.rgb, this.hatched);
    const wide = [];
    const ticks = this.ticks();
    context.fillStyle = ground.line;
    for (const t of ticks.at) {
      context.fillRect(Math.round(this.xOf(t) * ratio), 0, 1, this.plot.height);
    }
    seen.forEach((item, line) => {
      const held = this.blockOf(item.rank);
      const row = held?.lanes[item.lane]?.rows[item.row];
      if (item.head) {
        context.fillStyle = ground.panel;
        context.fillRect(0, (item.y - top) * ratio, width, item.height * ratio);
        context.fillStyle = ground.line;
        context.fillRect(0, Math.round((item.y - top) * ratio), width, 1);
      }
      if (row) this.drawRow(item, held, row, line, shades, wide);
    });
    const places = seen.map((i) => [(i.y - top + 1) * ratio, (i.height - 2) * ratio]);
    shades.put(context, places, this.lines);
    this.drawWide(context, wide, top, ratio);
    if (this.hitNames.size) this.drawHits(context, seen, top, ratio);
  }

  /** Shade the columns of one row, and collect what is wide enough to be drawn by itself. */
  drawRow(item, held, row, line, shades, wide) {
    const { block } = held;
    const scale = this.plot.width / (this.t1 - this.t0);
    if (row.bins >= 0) shades.addBins(block, row.bins, this.t0, scale);
    const { start, dur, role } = block;
    const last = row.first + row.count;
    const { t0, t1 } = this;
    const least = (WIDE_PX * this.ratio()) / scale;
    for (let i = firstAfter(block, row, t0); i < last; i++) {
      const begin = start[i];
      if (begin > t1) break;
      if (dur[i] >= least) wide.push(item, block, i);
      else shades.add((begin - t0) * scale, dur[i] * scale, role[i]);
    }
    shades.finish(line);
  }

  drawWide(context, wide, top, ratio) {
    const scale = this.plot.width / (this.t1 - this.t0);
    context.textBaseline = "middle";
    context.font = `${11 * ratio}px system-ui, "Segoe UI", Roboto, sans-serif`;
    const texts = [];
    let fill = -1;
    for (let n = 0; n < wide.length; n += 3) {
      const [item, block, i] = [wide[n], wide[n + 1], wide[n + 2]];
      const x0 = Math.max((block.start[i] - this.t0) * scale, -4);
      const x1 = Math.min((block.start[i] + block.dur[i] - this.t0) * scale, this.plot.width + 4);
      const y = (item.y - top + 1) * ratio;
      const h = (item.height - 2) * ratio;
      const role = block.role[i];
      if (role !== fill) {
        context.fillStyle = this.colours[role];
        fill = role;
      }
      const w = Math.max(x1 - x0 - ratio * 0.6, 1);
      context.fillRect(x0, y, w, h);
      if (this.hatched[role]) {
        context.fillStyle = this.lines;
        context.fillRect(x0, y, w, h);
        fill = -1;
      }
      if (w > 26 * ratio) texts.push(block.names[block.name[i]], x0, w, y + h / 2, role);
    }
    for (let n = 0; n < texts.length; n += 5) this.drawName(context, texts, n, ratio);
  }

  drawName(context, texts, n, ratio) {
    const [name, x0, w, y, role] = texts.slice(n, n + 5);
    const room = w - 8 * ratio;
    const from = Math.max(x0, 0) + 4 * ratio;
    const seen = Math.min(room, x0 + w - from - 4 * ratio);
    if (seen < 18 * ratio) return;
    const full = this.textWidth(context, name);
    let text = name;
    if (full > seen) {
      const kept = Math.floor((name.length * seen) / full) - 1;
      if (kept < 4) return;
      text = `${name.slice(0, kept)}…`;
    }
    if (this.hatched[role]) {
      context.fillStyle = this.colours[role];
      const under = Math.min(full, seen);
      context.fillRect(from - 2 * ratio, y - 6 * ratio, under + 4 * ratio, 12 * ratio);
    }
    context.fillStyle = this.inks[role];
    context.fillText(text, from, y + 0.5 * ratio);
  }

  textWidth(context, text) {
    this.widths ??= new Map();
    const key = `${context.font}|${text}`;
    let found = this.widths.get(key);
    if (found === undefined) {
      if (this.widths.size > 20_000) this.widths.clear();
      found = context.measureText(text).width;
      this.widths.set(key, found);
    }
    return found;
  }

  /** A line under every hit of the search in view, one for each pixel at most. */
  drawHits(context, seen, top, ratio) {
    const scale = this.plot.width / (this.t1 - this.t0);
    context.fillStyle = this.ground.hit;
    for (const item of seen) {
      const held = this.blockOf(item.rank);
      const row = held?.lanes[item.lane]?.rows[item.row];
      if (!row || item.head) continue;
      const { block } = held;
      const mask = this.maskOf(block);
      const y = (item.y - top + item.height - 3) * ratio;
      let drawn = -1;
      for (let i = firstAfter(block, row, this.t0); i < row.first + row.count; i++) {
        if (block.start[i] > this.t1) break;
        if (!mask[block.name[i]]) continue;
        const x0 = Math.floor(Math.max((block.start[i] - this.t0) * scale, 0));
        const x1 = Math.max((block.start[i] + block.dur[i] - this.t0) * scale, x0 + ratio);
        if (x1 > drawn) context.fillRect(x0, y, Math.max(x1 - x0 - ratio / 2, ratio), 3 * ratio);
        drawn = Math.max(drawn, x1);
      }
    }
  }

  maskOf(block) {
    if (block.maskFor !== this.hitNames) {
      block.mask = Uint8Array.from(block.names, (name) => (this.hitNames.has(name) ? 1 : 0));
      block.maskFor = this.hitNames;
    }
    return block.mask;
  }

  /** What lies over the lanes: the measure, the hovered and selected events, the flow. */
  drawOver(context, height) {
    const ratio = this.ratio();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (this.measure) {
      const [x0, x1] = [this.xOf(this.measure.t0), this.xOf(this.measure.t1)];
      context.fillStyle = this.ground.focus;
      context.globalAlpha = 0.16;
      context.fillRect(x0, 0, x1 - x0, height);
      context.globalAlpha = 1;
      context.fillRect(x0, 0, 1, height);
      context.fillRect(x1, 0, 1, height);
    }
    if (this.hover) this.drawBorder(context, this.hover, this.ground.ink, 1);
    if (this.flow && this.flow.members.length > 1) this.drawFlow(context);
    if (this.selected) this.drawBorder(context, this.selected, this.ground.focus, 2);
  }

  drawBorder(context, event, colour, width) {
    const place = this.placeOf(event);
    if (!place?.item) return;
    const { item } = place;
    const x0 = this.xOf(event.start);
    const w = Math.max(this.xOf(event.start + event.dur) - x0, 2);
    context.strokeStyle = colour;
    context.lineWidth = width;
    const y = item.y - this.scroll.scrollTop;
    context.strokeRect(x0 - width / 2, y + 0.5, w + width, item.height - 1);
  }

  /** From each member's arrival to the last one's: who waited for whom, and how long. */
  drawFlow(context) {
    const top = this.scroll.scrollTop;
    const points = this.flow.members.flatMap((m) => {
      const item = this.memberPlace(m)?.item;
      return item ? [{ x: this.xOf(m.start), y: item.y + item.height / 2 - top, item }] : [];
    });
    if (points.length < 2) return;
    const last = points[points.length - 1];
    context.strokeStyle = this.ground.focus;
    context.fillStyle = this.ground.focus;
    context.lineWidth = 1.5;
    for (const point of points.slice(0, -1)) {
      context.fillRect(point.x, point.y + point.item.height / 2 - 3, last.x - point.x, 2);
      context.beginPath();
      context.moveTo(point.x, point.y);
      const bend = Math.max(20, Math.abs(last.x - point.x) / 2);
      context.bezierCurveTo(point.x + bend, point.y, last.x - bend, last.y, last.x - 5, last.y);
      context.stroke();
      context.beginPath();
      context.arc(point.x, point.y, 3, 0, 7);
      context.fill();
    }
    context.beginPath();
    context.moveTo(last.x + 1, last.y);
    context.lineTo(last.x - 7, last.y - 4);
    context.lineTo(last.x - 7, last.y + 4);
    context.fill();
  }

  ticks() {
    const step = tickStep(this.t1 - this.t0, Math.max(this.width() / 110, 2));
    const at = [];
    const first = Math.ceil(this.t0 / step) * step;
    for (let t = first; t < this.t1 && at.length < 200; t += step) at.push(t);
    return { step, at };
  }

  drawRuler() {
    const context = sized(this.ruler, this.ruler.clientWidth, 22, this.ratio());
    if (!context) return;
    const ratio = this.ratio();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = this.ground.paper;
    context.fillRect(0, 0, this.ruler.clientWidth, 22);
    context.font = '11px system-ui, "Segoe UI", Roboto, sans-serif';
    context.textBaseline = "middle";
    const { step, at } = this.ticks();
    for (const t of at) {
      const x = Math.round(this.xOf(t) * ratio) / ratio;
      context.fillStyle = this.ground.line;
      context.fillRect(x, 14, 1, 8);
      context.fillStyle = this.ground.faint;
      const text = tickText(t, step);
      const fits = x + 3 + this.textWidth(context, text) < this.ruler.clientWidth;
      if (fits) context.fillText(text, x + 3, 11);
    }
    if (this.measure) {
      const [x0, x1] = [this.xOf(this.measure.t0), this.xOf(this.measure.t1)];
      const text = exactTime(this.measure.t1 - this.measure.t0);
      const wide = context.measureText(text).width;
      const x = Math.max(2, Math.min((x0 + x1) / 2 - wide / 2, this.ruler.clientWidth - wide - 2));
      context.fillStyle = this.ground.focus;
      context.fillRect(x0, 19, Math.max(x1 - x0, 1), 3);
      context.fillRect(x - 4, 2, wide + 8, 16);
      context.fillStyle = this.ground.paper;
      context.fillText(text, x, 10.5);
    }
  }

  /** All ranks over the whole time in small, and the part that is in view. */
  drawMini() {
    const [w, h] = [this.mini.clientWidth, this.mini.clientHeight];
    const ratio = this.ratio();
    const context = sized(this.mini, w, h, ratio);
    if (!context) return;
    if (this.miniStale || !this.miniPicture || this.miniPicture.width !== this.mini.width) {
      this.miniPicture = this.smallPicture();
      this.miniStale = false;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.miniPicture, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const whole = this.last - this.first;
    const x0 = ((this.t0 - this.first) / whole) * w;
    const x1 = Math.max(((this.t1 - this.first) / whole) * w, x0 + 2);
    context.fillStyle = this.ground.paper;
    context.globalAlpha = 0.62;
    context.fillRect(0, 0, x0, h);
    context.fillRect(x1, 0, w - x1, h);
    context.globalAlpha = 1;
    context.strokeStyle = this.ground.focus;
    context.lineWidth = 1.5;
    context.strokeRect(x0 + 0.75, 0.75, Math.max(x1 - x0 - 1.5, 1), h - 1.5);
  }

  smallPicture() {
    const picture = document.createElement("canvas");
    picture.width = this.mini.width;
    picture.height = this.mini.height;
    const context = picture.getContext("2d");
    context.fillStyle = this.ground.paper;
    context.fillRect(0, 0, picture.width, picture.height);
    const rows = this.ranks.flatMap((rank) => {
      const held = rank.whole ?? rank.summary;
      const lane = held?.lanes.find((l) => l.kind === "time");
      return [[held, lane?.rows[0]]];
    });
    const shades = new Shades(picture.width, rows.length, this.rgb, this.hatched);
    const scale = picture.width / (this.last - this.first);
    rows.forEach(([held, row], line) => {
      if (held && row) {
        const { block } = held;
        if (row.bins >= 0) shades.addBins(block, row.bins, this.first, scale);
        for (let i = row.first; i < row.first + row.count; i++) {
          shades.add((block.start[i] - this.first) * scale, block.dur[i] * scale, block.role[i]);
        }
      }
      shades.finish(line);
    });
    const high = picture.height / Math.max(rows.length, 1);
    const tall = Math.max(high - (high > 5 ? 1 : 0), 0.5);
    shades.put(context, rows.map((_, n) => [n * high, tall]), null);
    return picture;
  }

  // -- the table

  toggleTable() {
    this.twin.hidden = !this.twin.hidden;
    this.tableButton.setAttribute("aria-pressed", String(!this.twin.hidden));
    this.box.classList.toggle("with-table", !this.twin.hidden);
    this.fillTable();
    if (!this.twin.hidden) this.twin.focus();
    this.drawSoon();
  }

  tableSoon() {
    if (!this.twin.hidden) this.fillTable();
  }

  /** The longest events in view of the ranks that are open, by start. */
  longest() {
    const found = [];
    let total = 0;
    for (const item of this.items) {
      if (item.head) continue;
      const held = this.blockOf(item.rank);
      const row = held?.lanes[item.lane]?.rows[item.row];
      if (!row) continue;
      const { block } = held;
      for (let i = firstAfter(block, row, this.t0); i < row.first + row.count; i++) {
        if (block.start[i] > this.t1) break;
        total += 1;
        found.push([block.dur[i], item, held, i]);
      }
      if (found.length > 4 * TABLE_ROWS) cutTo(found, TABLE_ROWS);
    }
    cutTo(found, TABLE_ROWS);
    const events = found.map(([, item, held, i]) => this.toldOf(item, held, i));
    return { total, events: events.sort((a, b) => a.start - b.start || a.rank - b.rank) };
  }

  fillTable() {
    if (this.twin.hidden) return this.twin.replaceChildren();
    const { total, events } = this.longest();
    const all = total.toLocaleString("en");
    const isShaded = this.ranks.some((r) => r.open && (this.blockOf(r)?.numShaded ?? 0) > 0);
    const some = total > events.length ? `The ${events.length} longest of ${all} events`
      : `${all} event${total === 1 ? "" : "s"}`;
    const more = isShaded ? "; shorter ones are drawn as shade: zoom in to list them." : ".";
    const head = `${some} in view, by start${more}`;
    const button = (text, act) => make("button", { type: "button", click: act }, text);
    const lines = events.map((e) => make("tr", {}, make("td", { class: "n" }, String(e.rank)),
      make("td", {}, e.title),
      make("td", {}, button(e.name, () => this.choose(e, { keepInView: true }))),
      make("td", { class: "n" }, (e.start / 1000).toFixed(3)),
      make("td", { class: "n" }, (e.dur / 1000).toFixed(3)), make("td", {}, this.words[e.role])));
    const titles = [["rank", "n"], ["lane", ""], ["event", ""], ["start in µs", "n"],
      ["duration in µs", "n"], ["counts as", ""]];
    const heads = titles.map(([t, c]) => make("th", { scope: "col", class: c }, t));
    return this.twin.replaceChildren(button("Save as CSV", () => this.save(events)),
      make("table", {}, make("caption", {}, head),
        make("thead", {}, make("tr", {}, ...heads)),
        make("tbody", {}, ...lines)));
  }

  save(events) {
    const rows = [["rank", "lane", "name", "start_us", "dur_us", "role"], ...events.map((e) => [
      e.rank, e.title, e.name, (e.start / 1000).toFixed(3), (e.dur / 1000).toFixed(3),
      this.outline.roles[e.role].role])];
    const text = rows.map((row) => row.map(csvCell).join(",")).join("\r\n");
    const url = URL.createObjectURL(new Blob([`${text}\r\n`], { type: "text/csv" }));
    const link = make("a", { href: url, download: "timeline.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

/** A cell of CSV; what a spreadsheet would take for a formula is marked as text. */
function csvCell(value) {
  if (typeof value === "number") return String(value);
  const text = String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}

function cutTo(found, count) {
  if (found.length <= count) return;
  found.sort((a, b) => b[0] - a[0]);
  found.length = count;
}

function gapOf(points) {
  const [a, b] = [...points.values()];
  return Math.hypot(a[0] - b[0], a[1] - b[1]);
}

function rolesOf(held) {
  const found = new Set();
  const { block } = held;
  for (const lane of held.lanes) {
    for (const row of lane.rows) {
      const step = Math.max(1, Math.floor(row.count / 400));
      for (let i = row.first; i < row.first + row.count; i += step) found.add(block.role[i]);
      if (row.bins >= 0) {
        for (let i = row.bins; i < row.bins + block.numBins; i += 4) {
          if (block.busy[i]) found.add(block.most[i]);
        }
      }
    }
  }
  return found;
}

const THEME_ATTRIBUTES = ["class", "style", "data-theme", "data-mantine-color-scheme",
  "data-jp-theme-light"];

/** Light or dark where the page says so (pages with a switch, notebooks), else as the system is. */
function themeOfPage() {
  const { body, documentElement: page } = document;
  const said = page.dataset.theme ?? page.dataset.mantineColorScheme;
  if (said === "light" || said === "dark") return said;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false" ? "dark" : "light";
  if (body.matches(".vscode-dark, .vscode-high-contrast")) return "dark";
  return body.matches(".vscode-light") ? "light" : "auto";
}

/** Bring a canvas to a size in CSS pixels; its context, or null where it has no size. */
function sized(canvas, width, height, ratio) {
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (w < 1 || h < 1) return null;
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  return canvas.getContext("2d", { alpha: false });
}

function rgbOf(colour) {
  const hex = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(colour);
  if (hex) return hex.slice(1).map((part) => parseInt(part, 16));
  const one = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = one.getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

function hatching(ratio) {
  const size = Math.round(6 * ratio);
  const tile = Object.assign(document.createElement("canvas"), { width: size, height: size });
  const context = tile.getContext("2d");
  context.strokeStyle = "rgb(0 0 0 / 34%)";
  context.lineWidth = 1.3 * ratio;
  for (const shift of [-size, 0, size]) {
    context.beginPath();
    context.moveTo(shift - 1, size + 1);
    context.lineTo(shift + size + 1, -1);
    context.stroke();
  }
  return context.createPattern(tile, "repeat");
}

/** Columns of pixels of many rows: how busy each is, and with what. */
class Shades {
  constructor(width, rows, rgb, hatched) {
    this.width = width;
    this.rgb = rgb;
    this.hatched = hatched;
    this.image = rows ? new ImageData(width, rows) : null;
    this.pixels = rows ? new Uint32Array(this.image.data.buffer) : null;
    this.taken = rgb.map(() => new Float32Array(width + 1));
    this.some = new Uint8Array(width + 1);
    this.present = 0;
    this.runs = [];
  }

  /** Add an event by its place and length in pixels. */
  add(x, length, role) {
    let end = x + length;
    if (end < 0 || x >= this.width) return;
    if (x < 0) x = 0;
    if (end > this.width) end = this.width;
    const taken = this.taken[role];
    this.present |= 1 << role;
    let column = x | 0;
    this.some[column] = 1;
    const last = end | 0;
    if (column === last) {
      taken[column] += end - x;
      return;
    }
    taken[column] += column + 1 - x;
    for (column += 1; column < last; column++) taken[column] += 1;
    taken[last] += end - last;
  }

  /** Add a row's bins of what is not listed. */
  addBins(block, first, t0, scale) {
    const { busy, most, numBins, binNs } = block;
    const from = Math.max(0, Math.floor((t0 - block.t0) / binNs));
    const until = Math.min(numBins, Math.ceil((t0 + this.width / scale - block.t0) / binNs));
    const length = binNs * scale;
    for (let bin = from; bin < until; bin++) {
      const share = busy[first + bin] / 255;
      if (!share) continue;
      const role = most[first + bin];
      const x0 = (block.t0 + bin * binNs - t0) * scale;
      if (length <= 1) {
        this.add(x0, 0, role);
        const column = x0 | 0;
        if (x0 >= 0 && column < this.width) this.taken[role][column] += share * length;
        continue;
      }
      this.present |= 1 << role;
      const [begin, end] = [Math.max(x0, 0), Math.min(x0 + length, this.width)];
      for (let column = begin | 0; column < end; column++) {
        const covered = Math.min(column + 1, end) - Math.max(column, begin);
        this.taken[role][column] += share * covered;
        this.some[column] = 1;
      }
    }
  }

  /** Turn what was added into one line of pixels, and begin anew. */
  finish(line) {
    if (!this.present) return;
    const roles = this.rgb.map((_, role) => role).filter((role) => this.present & (1 << role));
    const { width, some, taken, pixels } = this;
    const base = line * width;
    const colour = this.rgb.map(([r, g, b]) => (b << 16) | (g << 8) | r);
    let run = -1;
    for (let x = 0; x < width; x++) {
      let [best, most, sum] = [roles[0], -1, 0];
      for (const role of roles) {
        const part = taken[role][x];
        sum += part;
        if (part > most) {
          most = part;
          best = role;
        }
      }
      const isHatched = sum > 0.3 && this.hatched[best];
      if (isHatched && run < 0) run = x;
      else if (!isHatched && run >= 0) {
        if (x - run > 3) this.runs.push(line, run, x - run);
        run = -1;
      }
      if (!(sum > 0 || some[x])) continue;
      const shade = Math.min(1, 0.14 + 0.86 * Math.min(sum, 1));
      pixels[base + x] = ((Math.round(shade * 255) << 24) | colour[best]) >>> 0;
    }
    if (run >= 0 && width - run > 3) this.runs.push(line, run, width - run);
    for (const role of roles) taken[role].fill(0);
    some.fill(0);
    this.present = 0;
  }

  /** Stretch each line over its place on a canvas. */
  put(context, places, lines) {
    if (!this.image) return;
    const picture = Object.assign(document.createElement("canvas"), {
      width: this.width, height: this.image.height,
    });
    picture.getContext("2d").putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    places.forEach(([y, height], line) => {
      context.drawImage(picture, 0, line, this.width, 1, 0, y, this.width, height);
    });
    if (!lines) return;
    context.fillStyle = lines;
    for (let n = 0; n < this.runs.length; n += 3) {
      const [y, height] = places[this.runs[n]];
      context.fillRect(this.runs[n + 1], y, this.runs[n + 2], height);
    }
  }
}

// -- a notebook -----------------------------------------------------------------------------------

/** What anywidget calls to show a widget. */
export function render({ model, el }) {
  el.style.height = `${model.get("height")}px`;
  const view = mount(el, messageSource(model), { wheel: "focus" });
  return () => view.destroy();
}

export default { render };
