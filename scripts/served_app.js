// Watches a page of the app from its very beginning: when it has come to rest, and what a drag costs.
// All times are milliseconds on the clock of performance.now().
(() => {
  const QUIET = 200; // nothing has changed for so long: the page is at rest
  const PLOT = ".js-plotly-plot .main-svg";
  const NOISE = "[data-testid=stStatusWidget], [data-testid=stHeader], [data-testid=stToolbar]";
  const state = { start: 0, armed: false, last: 0, running: false, firstChart: null, moves: [], release: null };

  const app = () => document.querySelector("[data-testid=stApp]");
  const all = (selector) => [...document.querySelectorAll(selector)];
  const texts = (selector) => all(selector).map((one) => one.textContent).join("|");
  const metrics = () => texts("[data-testid=stMetricValue]");
  const preview = () => texts(".st-key-preview_value");

  new MutationObserver((changes) => {
    const now = performance.now();
    if (app() && app().dataset.testScriptState === "running") state.running = true;
    // a chart changes thousands of things at once: one that counts is enough
    if (!changes.some((one) => one.target.nodeType !== 1 || !one.target.closest(NOISE))) return;
    state.last = now;
    if (state.firstChart === null && document.querySelector(PLOT)) state.firstChart = now;
    if (state.release) noteRelease(changes, now);
  }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });

  // what changes after a threshold was released: the numbers, the last of the charts, a value of the preview
  function noteRelease(changes, now) {
    const { seen } = state.release;
    if (seen.counts === null && metrics() !== state.release.metrics) seen.counts = now;
    const inChart = changes.some((one) => one.target.nodeType === 1 && one.target.closest(".js-plotly-plot"));
    if (inChart) seen.charts = now;
    const value = preview();
    if (seen.preview === null && value !== state.release.preview && /\d/.test(value)) seen.preview = now;
  }

  function begin() {
    const now = performance.now();
    Object.assign(state, { start: now, last: now, running: false, armed: false });
  }

  for (const kind of ["click", "pointerup"]) {
    window.addEventListener(kind, () => { if (state.armed === kind) begin(); }, true);
  }

  // the cost of one move: its handlers, and the frame that they lead to; waiting for that frame is not counted
  let handlers = null;
  window.addEventListener("pointermove", () => {
    if (!state.dragging) return;
    const move = { entered: performance.now(), left: null };
    handlers = move;
    // asked for before the handlers can ask: this frame's own work comes after it
    requestAnimationFrame(() => {
      const frame = performance.now();
      after(() => state.moves.push((move.left ?? move.entered) - move.entered + performance.now() - frame));
    });
  }, true);
  window.addEventListener("pointermove", () => { if (handlers) handlers.left = performance.now(); });

  function after(work) {
    const channel = new MessageChannel();
    channel.port1.onmessage = work;
    channel.port2.postMessage(0);
  }

  window.watcher = {
    // the next event of this kind begins a measurement
    arm: (kind) => { state.armed = kind; state.running = false; },
    drag: (on) => { state.dragging = on; if (on) state.moves = []; },
    moves: () => state.moves,
    watchRelease: () => {
      const seen = { counts: null, charts: null, preview: null };
      state.release = { metrics: metrics(), preview: preview(), seen };
    },
    previewed: () => state.release.seen.preview !== null,
    released: () => {
      const { seen } = state.release;
      state.release = null;
      const since = (time) => (time === null ? null : time - state.start);
      return { counts: since(seen.counts), charts: since(seen.charts), preview: since(seen.preview) };
    },
    // a page that has nothing to do never says that it ran
    rests: () => {
      const now = performance.now();
      if (state.armed || !app() || app().dataset.testScriptState !== "notRunning") return false;
      if (now - state.last < QUIET || (!state.running && now - state.start < 10 * QUIET)) return false;
      if (document.querySelector("[data-testid=stSkeleton], [data-testid=stSpinner]")) return false;
      // a chart in a closed tab is not drawn
      const shown = all("[data-testid=stPlotlyChart]").filter((one) => one.offsetParent !== null);
      return shown.every((one) => one.querySelector(".main-svg"));
    },
    result: () => ({ rested: state.last - state.start, firstChart: state.firstChart }),
  };
})();
