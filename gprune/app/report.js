"use strict";
(function () {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const themes = read("themes");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = [];
  const template = () => (dark.matches ? themes.dark : themes.light).layout.template;
  const transparent = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  const adapt = (layout) => ({ ...layout, ...transparent, template: template(), autosize: true, width: undefined });
  const options = (name) => ({
    displaylogo: false,
    responsive: true,
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
    toImageButtonOptions: { format: "svg", filename: name },
  });
  async function start() {
    for (const holder of document.querySelectorAll("[data-figure]")) {
      const { data, layout } = read(holder.dataset.figure);
      await Plotly.newPlot(holder, data, adapt(layout), options(holder.dataset.name));
      drawn.push(holder);
    }
    document.documentElement.dataset.drawn = String(drawn.length);
  }
  dark.addEventListener("change", () => {
    for (const holder of drawn) Plotly.relayout(holder, { template: template() });
  });
  start();
})();
