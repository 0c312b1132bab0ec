// Perplexity against retention, on a log axis, with a line at the retention that is chosen; one module
// with dragging.js. Between measured points perplexity is interpolated here, along the drawn line, and said to
// be. Text from outside goes in by textContent alone.

const MARGIN = { left: 66, right: 18, top: 26, bottom: 44 }
const REACH = [0, 1]
const SAME = 0.005 // a point this near to the line is the one that is read
const NARROW = 400 // of the plot, in pixels: more than five shares of the weights would run into each other
const SVG = "http://www.w3.org/2000/svg"

function build(root) {
  const one = (name) => root.querySelector(name)
  return {
    plot: one(".plot"),
    curve: one(".curve"),
    keys: one(".keys"),
    tip: one(".tip"),
    readings: one(".readings"),
    lines: { retention: one(".retention") },
    level: { retention: 0.5 },
    grid: { steps: 100, page: 5, low: 5, high: 98 },
    drawn: "",
    draw,
    valueAt: (self, name, event) => fromX(self, event.clientX - self.plot.getBoundingClientRect().left),
    still: () => {},
    moving: (self) => (self.tip.hidden = true),
  }
}

function accept(self, data) {
  self.grid = data.grid
  reach(self.lines.retention, data.grid.low / data.grid.steps, data.grid.high / data.grid.steps)
  self.curve.setAttribute("aria-label", data.alt)
  self.root.classList.toggle("fills", data.fills)
  follow(self, { retention: data.retention })
  self.drawn = ""
}

// ---- places

const across = (self) => self.width - MARGIN.left - MARGIN.right
const toX = (self, value) => MARGIN.left + ((value - REACH[0]) / (REACH[1] - REACH[0])) * across(self)
const fromX = (self, x) => REACH[0] + ((x - MARGIN.left) / across(self)) * (REACH[1] - REACH[0])

function toY(self, value) {
  const [low, high] = self.data.range.map(Math.log)
  const share = Math.min(1, Math.max(0, (Math.log(value) - low) / (high - low)))
  return MARGIN.top + (1 - share) * (self.height - MARGIN.top - MARGIN.bottom)
}

// ---- what a method costs at a retention

function read(points, level) {
  const exact = points.find((point) => Math.abs(point.x - level) < SAME)
  if (exact) return { value: exact.y, how: exact.whole ? "measured" : `measured, ${exact.windows}` }
  const after = points.findIndex((point) => point.x > level)
  if (after < 1) return null
  const [a, b] = [points[after - 1], points[after]]
  const share = (level - a.x) / (b.x - a.x)
  return { value: Math.exp(Math.log(a.y) * (1 - share) + Math.log(b.y) * share), how: "interpolated" }
}

// ---- drawing

function draw(self) {
  self.width = self.plot.clientWidth
  self.height = self.plot.clientHeight
  const size = `${self.width} ${self.height}`
  // while the line moves, the curve stays as it is
  if (self.drawn !== size) {
    self.drawn = size
    picture(self)
    legend(self)
  }
  moveLine(self)
}

function shape(parent, kind, attributes, words) {
  const made = document.createElementNS(SVG, kind)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  if (words !== undefined) made.textContent = words
  parent.append(made)
  return made
}

function picture(self) {
  const { curve, data, width } = self
  curve.replaceChildren()
  axes(self)
  if (data.dense) {
    const y = toY(self, data.dense)
    shape(curve, "line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y, stroke: data.grey, "stroke-dasharray": "2 3" })
    shape(curve, "text", { x: MARGIN.left + 4, y: y - 5 }, `dense ${data.dense.toFixed(2)}`)
  }
  for (const one of data.series) method(self, one)
}

function axes(self) {
  const { curve, data, width, height } = self
  const foot = height - MARGIN.bottom
  for (const value of ticks(...REACH, across(self) < NARROW ? 5 : 10)) {
    const x = toX(self, value)
    shape(curve, "line", { class: "grid", x1: x, x2: x, y1: MARGIN.top, y2: foot })
    shape(curve, "text", { x, y: foot + 17, "text-anchor": "middle" }, `${Math.round(100 * value)} %`)
  }
  for (const { value, text } of data.ticks) {
    const y = toY(self, value)
    shape(curve, "line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y })
    shape(curve, "text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, text)
  }
  const middle = { x: (MARGIN.left + width - MARGIN.right) / 2, y: (MARGIN.top + foot) / 2 }
  shape(curve, "text", { x: middle.x, y: foot + 36, "text-anchor": "middle" }, "decoder weights kept")
  const turned = { transform: `translate(14 ${middle.y}) rotate(-90)`, "text-anchor": "middle" }
  shape(curve, "text", turned, "perplexity (log scale)")
}

function method(self, one) {
  const place = (point) => `${toX(self, point.x)},${toY(self, point.y)}`
  const stroke = { stroke: one.color, "stroke-width": 2, "stroke-dasharray": one.dash, fill: "none" }
  if (one.points.length > 1) shape(self.curve, "polyline", { ...stroke, points: one.points.map(place).join(" ") })
  for (const point of one.points) {
    const [x, y] = [toX(self, point.x), toY(self, point.y)]
    const [top, bottom] = [toY(self, point.high), toY(self, point.low)]
    const bar = `M${x} ${top}V${bottom}M${x - 3} ${top}h6M${x - 3} ${bottom}h6`
    shape(self.curve, "path", { d: bar, stroke: one.color, fill: "none" })
    const dot = mark(self.curve, one, x, y, 5)
    dot.setAttribute("class", point.whole ? "point" : "point hollow")
    dot.onclick = () => take(self, point)
    dot.onpointerenter = () => hint(self, one, point)
    dot.onpointerleave = () => (self.tip.hidden = true)
  }
}

// a method's own mark is round, and that of a form of it a square in the same hue
function mark(parent, one, x, y, reach) {
  const look = { stroke: one.color, "stroke-width": 2, fill: one.color }
  if (!one.form) return shape(parent, "circle", { cx: x, cy: y, r: reach, ...look })
  return shape(parent, "rect", { x: x - reach, y: y - reach, width: 2 * reach, height: 2 * reach, ...look })
}

function take(self, point) {
  move(self, { retention: snap(self, point.x) })
  tell(self)
}

function hint(self, one, point) {
  if (self.dragging) return
  const words = [`${one.name}, ${(100 * point.x).toFixed(1)} % kept`, `perplexity ${figure(point.y)}`, point.windows, "click to take its retention"]
  self.tip.textContent = words.join("\n")
  self.tip.hidden = false
  const x = toX(self, point.x)
  self.tip.style.left = `${x + (x > self.width - 230 ? -12 : 12)}px`
  self.tip.style.top = `${Math.min(toY(self, point.y), self.height - 110)}px`
  self.tip.classList.toggle("left", x > self.width - 230)
}

function legend(self) {
  const keys = self.data.series.map((one) => {
    const entry = document.createElement("span")
    const sample = shape(entry, "svg", { viewBox: "0 0 34 12" })
    const line = { x1: 0, x2: 34, y1: 6, y2: 6, stroke: one.color, "stroke-width": 2, "stroke-dasharray": one.dash }
    if (one.points.length > 1) shape(sample, "line", line)
    mark(sample, one, 17, 6, 3)
    entry.append(one.name)
    return entry
  })
  self.keys.replaceChildren(...keys)
}

const figure = (value) => (value < 1000 ? value.toFixed(2) : String(Number(value.toPrecision(4))))

function moveLine(self) {
  const element = self.lines.retention
  const level = self.level.retention
  const words = `${Math.round(100 * level)} % kept`
  stand(self, element, toX(self, level), MARGIN, 110)
  announce(element, level, words, words)
  const found = self.data.series.map((one) => [one.name, read(one.points, level)])
  self.readings.replaceChildren(...found.map(([name, at]) => reading(name, at)))
  self.root.dataset.retention = String(level)
}

function reading(name, at) {
  const entry = document.createElement("span")
  entry.dataset.method = name
  const value = document.createElement("b")
  value.textContent = at ? `${at.how === "interpolated" ? "≈ " : ""}${figure(at.value)}` : "–"
  const how = document.createElement("span")
  how.className = "how"
  how.textContent = at ? ` (${at.how})` : " (not measured on both sides)"
  entry.append(`${name} `, value, how)
  return entry
}
