// What the pages do in the browser: the address is the state, and everything here reads or writes it.
(function () {
  "use strict";

  const NEW = () => window.dash_clientside.no_update;
  const viewer = Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("");
  const root = document.documentElement;

  function scheme() {
    const set = root.dataset.mantineColorScheme;
    if (set === "dark" || set === "light") return set;
    return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  // Move to an address of ours without loading the page anew, as dcc.Link does.
  function go(href, replace) {
    const to = new URL(href, location.href);
    if (to.origin !== location.origin) return;
    history[replace ? "replaceState" : "pushState"]({}, "", to.href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    if (!replace) window.scrollTo(0, 0);
  }

  // what another run does not have
  const OF_A_RUN = ["steps", "capture", "step", "rank", "t0", "t1", "event", "find"];

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    tracekit: {
      // The one thing the server draws from.
      request(path, search, theme, mark, halted, last) {
        const now = { path, search: search || "", scheme: scheme(), viewer, mark, halted };
        const same = last && Object.keys(now).every((key) => now[key] === last[key]);
        return same ? NEW() : now;
      },

      // Stop loading here, or begin again.
      halt(stops, agains, request) {
        if (!request) return NEW();
        if (stops.some(Boolean)) return request.path + request.search;
        return agains.some(Boolean) ? "again " + Date.now() : NEW();
      },

      // Controls write their values into the address; what is as ever needs no place there.
      params(values, ids, request, drawn) {
        // while another view is on its way, controls still show what was before
        if (!request || request.path + request.search !== drawn) return NEW();
        const told = window.dash_clientside.callback_context.triggered.map((t) => t.prop_id).join(" ");
        const search = new URLSearchParams(location.search);
        const before = search.toString();
        const shown = new URLSearchParams(request.search);
        ids.forEach(({ name, as_ever }, at) => {
          if (!told.includes(`"name":"${name}"`)) return;
          const value = String(values[at] ?? "");
          if (value === (shown.get(name) ?? as_ever)) return; // as it was drawn: nobody chose it
          if (value === as_ever) search.delete(name);
          else if (search.get(name) !== value) search.set(name, value);
          if (name === "run" && before !== search.toString()) {
            OF_A_RUN.forEach((key) => search.delete(key));
          }
        });
        if (search.toString() !== before) go("?" + search.toString());
        return NEW();
      },

      // A click on a figure leads where its layout says.
      click(clicks, figures) {
        const told = window.dash_clientside.callback_context.triggered;
        const at = clicks.findIndex((c, i) => c && told.length && told[0].value === c && figures[i]);
        if (at < 0) return NEW();
        const layout = figures[at].layout || {};
        const href = layout.meta && layout.meta.click;
        const point = clicks[at].points && clicks[at].points[0];
        if (!href || !point) return NEW();
        const put = (text, key, value) => text.split(encodeURIComponent(key)).join(encodeURIComponent(value));
        go(put(put(href, "{x}", point.x), "{y}", point.y));
        return NEW();
      },
    },
  });

  // -- light and dark ----------------------------------------------------------------------------

  function themed() {
    const now = scheme();
    root.dataset.theme = now;
    root.dataset.agThemeMode = now;
    const client = window.dash_clientside;
    if (client && client.set_props) {
      try {
        client.set_props("scheme", { data: now });
      } catch (error) {
        // before the first drawing there is no store yet; the first request reads the scheme itself
      }
    }
  }
  new MutationObserver(themed).observe(root, { attributeFilter: ["data-mantine-color-scheme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
  root.dataset.theme = scheme();
  root.dataset.agThemeMode = scheme();

  // -- keys --------------------------------------------------------------------------------------

  function writing(target) {
    return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  }

  function keys() {
    const dialog = document.getElementById("keys");
    if (dialog && !dialog.open) dialog.showModal();
  }

  function field(name) {
    const found = document.querySelector(`[id*='"name":"${name}","type":"param"']`);
    return found && (found.matches("input") ? found : found.querySelector("input"));
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && writing(event.target)) event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || writing(event.target)) return;
    if (event.target.closest && event.target.closest("[data-own-keys]")) return;
    if (event.key === "?") keys();
    else if (event.key >= "1" && event.key <= "9") {
      const link = document.querySelectorAll(".tk-page-link")[Number(event.key) - 1];
      if (link) link.click();
    } else if (event.key === "s" || event.key === "r") {
      const input = field(event.key === "s" ? "steps" : "run");
      if (!input) return;
      input.focus();
      input.select();
    } else return;
    event.preventDefault();
  });

  // -- pictures to take along --------------------------------------------------------------------

  document.addEventListener("click", (event) => {
    const target = event.target.closest ? event.target : null;
    if (!target) return;
    if (target.closest("#keys-button")) keys();
    const button = target.closest(".tk-image");
    if (!button) return;
    const id = JSON.stringify({ name: button.dataset.figure, type: "figure" });
    const holder = document.getElementById(id);
    const plot = holder && holder.querySelector(".js-plotly-plot");
    if (!plot || !window.Plotly) return;
    const filename = "tracekit-" + button.dataset.figure;
    const size = { width: plot.clientWidth, height: plot.clientHeight };
    window.Plotly.downloadImage(plot, { format: button.dataset.format, filename, scale: 2, ...size });
  });

  // -- cells of tables ---------------------------------------------------------------------------

  const known = (value) => typeof value === "number" && Number.isFinite(value);
  const or = (value, absent, text) => (known(value) ? text(value) : absent || "not known");
  const grouped = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");

  const tk = {
    ms: (value, digits, absent) =>
      or(value, absent, (v) => (v / 1000).toFixed(digits).replace(/^-(0\.?0*)$/, "$1")),
    percent: (value, absent) => or(value, absent, (v) => (100 * v).toFixed(1)),
    change: (value, absent) => or(value, absent, (v) => (v > 0 ? "+" : "") + (100 * v).toFixed(1)),
    rate: (value, absent) =>
      or(value, absent, (v) => (v >= 99.5 ? v.toFixed(0) : String(Number(v.toPrecision(3))))),
    whole: (value, absent) => or(value, absent, (v) => grouped(v.toFixed(0))),
    yes: (value, absent) => (value === null || value === undefined ? absent : value ? "yes" : "no"),
    text: (value, absent) => (value === null || value === undefined || value === "" ? absent : value),
    size: (value, absent) =>
      or(value, absent, (v) => {
        let unit = "B";
        for (const larger of ["kB", "MB", "GB", "TB"]) {
          if (v < 999.5) break;
          v /= 1000;
          unit = larger;
        }
        return (unit === "B" ? v.toFixed(0) : String(Number(v.toPrecision(3)))) + " " + unit;
      }),
    gridTheme: (base) =>
      base.withParams({
        fontFamily: "inherit",
        fontSize: 12,
        backgroundColor: "var(--tracekit-paper)",
        foregroundColor: "var(--tracekit-ink)",
        headerBackgroundColor: "var(--tracekit-panel)",
        borderColor: "var(--tracekit-line)",
        rowHoverColor: "color-mix(in srgb, var(--tracekit-focus) 10%, transparent)",
        oddRowBackgroundColor: "transparent",
        browserColorScheme: "inherit",
        cellHorizontalPadding: 8,
        headerFontWeight: 550,
        headerColumnResizeHandleColor: "transparent",
        wrapperBorderRadius: 3,
      }),
  };
  window.dashAgGridFunctions = Object.assign(window.dashAgGridFunctions || {}, { tk });

  const parts = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  // A link of ours; what is no path of this server is no link.
  parts.Link = function (props) {
    const href = props.value;
    if (typeof href !== "string" || !/^\/(?!\/)/.test(href)) return null;
    const move = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(href);
    };
    return window.React.createElement("a", { href, onClick: move }, "show");
  };

  window.tracekit = { go, scheme };
})();
