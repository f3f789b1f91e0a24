// Mounts the canvas of the timeline page, and keeps what it shows in the address.
(function () {
  "use strict";

  const held = new WeakMap();

  // Ask the server; which run is in every question.
  function source(base, run) {
    return {
      async ask(method, params = {}, signal = undefined) {
        const query = new URLSearchParams(run);
        for (const [key, value] of Object.entries(params)) {
          if (value !== undefined && value !== null) query.set(key, String(value === true ? 1 : value));
        }
        for (let tries = 0; ; tries += 1) {
          const reply = await fetch(`${base}/${method}?${query}`, { signal, credentials: "same-origin" });
          if (reply.status === 503 && tries < 20) {
            await new Promise((resolve) => setTimeout(resolve, 500));
            continue;
          }
          if (!reply.ok) throw new Error((await reply.text()).trim().slice(0, 300));
          return method === "block" ? reply.arrayBuffer() : reply.json();
        }
      },
    };
  }

  // Where the steps asked for lie, of one rank or of all.
  async function stretch(module, asker, steps, rank) {
    const [first, last = first] = steps.split(":").map(Number);
    if (!Number.isFinite(first)) return null;
    const params = { summary: 1, ...(rank ? { ranks: rank } : {}) };
    const block = module.readBlock(await asker.ask("block", params));
    let [low, high] = [Infinity, -Infinity];
    for (const { lanes } of block.ranks.values()) {
      for (const row of lanes.filter((lane) => lane.kind === "steps").flatMap((lane) => lane.rows)) {
        for (let at = row.first; at < row.first + row.count; at += 1) {
          const number = Number(block.names[block.name[at]].replace("step ", ""));
          if (number < first || number > last) continue;
          low = Math.min(low, block.start[at]);
          high = Math.max(high, block.start[at] + block.dur[at]);
        }
      }
    }
    const margin = 0.02 * (high - low);
    return high > low ? [low - margin, high + margin] : null;
  }

  function number(search, key) {
    const text = search.get(key);
    return text !== null && text !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined;
  }

  function remember(state) {
    const search = new URLSearchParams(location.search);
    const put = (key, value) => (value ? search.set(key, value) : search.delete(key));
    put("t0", (state.t0 / 1000).toFixed(3));
    put("t1", (state.t1 / 1000).toFixed(3));
    put("event", state.selected ? `${state.selected.rank}:${state.selected.row}` : "");
    put("find", state.search);
    ["step", "rank"].forEach((key) => search.delete(key));
    history.replaceState(history.state, "", `${location.pathname}?${search}`);
  }

  async function mount(element, earlier) {
    const { module: file, source: base, asked, steps, rank } = element.dataset;
    const mine = { key: key(element), place: place(element), controller: null };
    held.set(element, mine);
    const asker = source(base, asked);
    try {
      const module = await import(new URL(file, location.href).href);
      const outline = await asker.ask("outline");
      const once = { ask: (method, ...rest) => (method === "outline" ? Promise.resolve(outline) : asker.ask(method, ...rest)) };
      const search = new URLSearchParams(location.search);
      const options = { wheel: "zoom", onChange: remember, ...earlier };
      if (!earlier) {
        const [t0, t1] = [number(search, "t0"), number(search, "t1")];
        if (t0 !== undefined && t1 !== undefined) Object.assign(options, { t0: t0 * 1000, t1: t1 * 1000 });
        else if (steps) {
          const found = await stretch(module, asker, steps, rank);
          if (found) [options.t0, options.t1] = found;
        }
        const [at, row] = (search.get("event") || "").split(":").map(Number);
        if (Number.isInteger(at) && Number.isInteger(row)) options.selected = { rank: at, row };
        options.search = search.get("find") || "";
      }
      if (held.get(element) !== mine || !element.isConnected) return;
      mine.controller = module.mount(element, once, options);
    } catch (error) {
      element.textContent = `The timeline cannot be shown: ${error.message}`;
    }
  }

  function key(element) {
    return `${place(element)} ${element.dataset.version}`;
  }

  function place(element) {
    const { source: base, asked, steps, rank } = element.dataset;
    return [base, asked, steps, rank].join(" ");
  }

  function look() {
    const element = document.getElementById("timeline");
    if (!element) return;
    const mine = held.get(element);
    if (mine && mine.key === key(element)) return;
    let earlier = null;
    if (mine && mine.controller) {
      const { t0, t1, selected, search } = mine.controller.state();
      // the same run has grown: what is looked at stays where it is
      if (mine.place === place(element)) earlier = { t0, t1, selected, search };
      mine.controller.destroy();
    }
    mount(element, earlier);
  }

  new MutationObserver(look).observe(document, { childList: true, subtree: true, attributes: true,
    attributeFilter: ["data-version", "data-asked", "data-steps", "data-rank"] });
})();
