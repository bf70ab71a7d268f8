"use strict";
// Charts: figures come from the page's data, colours from here, so that light,
// dark and print each have a palette told apart without colour vision.
const chartsDrawn = (() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const narrow = window.matchMedia("(max-width: 52rem)");
  const palettes = {
    light: ["#0072b2", "#d55e00", "#00805c", "#b3487f", "#7a5195", "#8a6d00", "#2f9fd0", "#6b7280"],
    dark: ["#56b4e9", "#f0883e", "#2cc295", "#e08fbb", "#b79bdc", "#e6c229", "#9ad4f5", "#9aa3af"],
  };

  const deepCopy = (value) => JSON.parse(JSON.stringify(value));

  function themed(figure, height, theme) {
    const ink = theme === "dark" ? "#e6e9ee" : "#1d2129";
    const line = theme === "dark" ? "#353c47" : "#dfe2e7";
    const copy = deepCopy(figure);
    const palette = palettes[theme];
    for (const trace of copy.data) {
      if (!trace.meta) continue;
      const colour = palette[trace.meta.colour % palette.length];
      trace.marker = { ...trace.marker, color: colour };
      if (trace.marker.pattern) {
        trace.marker.pattern.fgcolor = theme === "dark" ? "#14171c" : "#ffffff";
        trace.marker.pattern.fillmode = "overlay";
      }
      if (trace.type === "scatter") trace.cliponaxis = false;
      trace.line = { color: colour, width: 2 };
      if (trace.error_x) trace.error_x.color = trace.type === "bar" ? ink : colour;
      if (trace.error_y) trace.error_y.color = colour;
    }
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
    copy.layout = {
      ...copy.layout,
      height,
      autosize: true,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow.matches ? 11 : 13, color: ink },
      // The toolbar has the top of the margin to itself.
      margin: { l: 10, r: 14, t: 40, b: 96, ...copy.layout.margin },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: ink, activecolor: palette[0] },
      legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", traceorder: "normal" },
      hoverlabel: { align: "left" },
      xaxis: { ...axis, ...copy.layout.xaxis },
      yaxis: { ...axis, ...copy.layout.yaxis },
    };
    return copy;
  }

  function draw(theme) {
    return Promise.all([...document.querySelectorAll("[data-chart]")].map((place) => {
      const figure = themed(page.charts[place.dataset.chart], Number(place.dataset.height), theme);
      return window.Plotly.react(place, figure.data, figure.layout, {
        responsive: true,
        displayModeBar: "hover",
        displaylogo: false,
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
      });
    }));
  }

  const current = () => (dark.matches ? "dark" : "light");
  const drawn = draw(current());
  dark.addEventListener("change", () => draw(current()));
  narrow.addEventListener("change", () => draw(current()));
  window.addEventListener("beforeprint", () => draw("light"));
  window.addEventListener("afterprint", () => draw(current()));
  return drawn;
})();
