"use strict";
(function () {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const looks = read("looks");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];
  const look = () => (dark.matches ? looks.dark : looks.light).layout.template;
  const ground = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  const narrow = (layout) => ({ ...layout, ...ground, template: look(), autosize: true, width: undefined });
  const options = (name) => ({
    displaylogo: false,
    responsive: true,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    toImageButtonOptions: { format: "svg", filename: name },
  });
  async function start() {
    for (const holder of document.querySelectorAll("[data-figure]")) {
      const { data, layout } = read(holder.dataset.figure);
      await Plotly.newPlot(holder, data, narrow(layout), options(holder.dataset.name));
      drawn.push(holder);
    }
    document.documentElement.dataset.drawn = String(drawn.length);
  }
  dark.addEventListener("change", () => {
    for (const holder of drawn) Plotly.relayout(holder, { template: look() });
  });
  start();
})();
