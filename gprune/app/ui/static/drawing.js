// Positions and drawing of modules and lines, and the pointer; joined with counting.js into one module.

function scale(self) {
  const { drift, score } = self.modules
  self.width = self.plot.clientWidth
  self.height = self.plot.clientHeight
  const inner = { x: self.width - MARGIN.left - MARGIN.right, y: self.height - MARGIN.top - MARGIN.bottom }
  const heights = self.data.log ? score.filter((value) => value > 0).map(Math.log10) : score
  self.log = self.data.log && heights.length > 0
  const [left, right] = padded(drift)
  const [bottom, top] = padded(heights.length ? heights : score)
  self.range = { left, right, bottom, top }
  self.toX = (value) => MARGIN.left + ((value - left) / (right - left)) * inner.x
  self.fromX = (x) => left + ((x - MARGIN.left) / inner.x) * (right - left)
  const lift = self.log ? (value) => (value > 0 ? Math.log10(value) : -Infinity) : (value) => value
  self.toY = (value) => {
    const share = (lift(value) - bottom) / (top - bottom)
    return MARGIN.top + (1 - Math.max(share, 0)) * inner.y
  }
  self.fromY = (y) => {
    const value = bottom + (1 - (y - MARGIN.top) / inner.y) * (top - bottom)
    return self.log ? 10 ** value : value
  }
}

function padded(values) {
  let low = Infinity
  let high = -Infinity
  for (const value of values) {
    if (value < low) low = value
    if (value > high) high = value
  }
  const margin = 0.04 * (high - low) || Math.max(Math.abs(high), 1) * 0.04
  return [low - margin, high + margin]
}

function placeModules(self) {
  const { drift, score, size, x, y, radius } = self.modules
  const largest = size.reduce((most, value) => Math.max(most, value), 1)
  const widest = drift.length <= 300 ? 16 : 9
  for (let i = 0; i < drift.length; i += 1) {
    x[i] = self.toX(drift[i])
    // a score of zero has no position on a log axis: it is drawn outside the canvas
    y[i] = self.log && !(score[i] > 0) ? -100 : self.toY(score[i])
    radius[i] = Math.max(widest * Math.sqrt(size[i] / largest), SMALLEST) / 2
  }
}

function draw(self) {
  const start = performance.now()
  const look = getComputedStyle(self.root)
  const ink = (name) => look.getPropertyValue(`--st-${name}`).trim()
  self.ink = { text: ink("text-color"), line: ink("border-color"), accent: ink("primary-color"), font: ink("font") }
  scale(self)
  placeModules(self)
  decide(self)
  drawPoints(self)
  moveLines(self)
  writeCounts(self)
  self.root.dataset.milliseconds = (performance.now() - start).toFixed(2)
}

function surface(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio)
    canvas.height = Math.round(height * ratio)
  }
  const pen = canvas.getContext("2d")
  pen.setTransform(ratio, 0, 0, ratio, 0, 0)
  pen.clearRect(0, 0, width, height)
  return pen
}

function drawPoints(self) {
  const { x, y, radius, group } = self.modules
  const pen = surface(self.canvas, self.width, self.height)
  shade(self, pen)
  axes(self, pen)
  for (const now of [KEPT, FROM_A, FROM_B]) {
    pen.fillStyle = self.data.colors[now]
    pen.globalAlpha = now === KEPT ? 0.5 : 0.92
    for (let i = 0; i < x.length; i += 1) if (group[i] === now) mark(pen, now, x[i], y[i], radius[i])
  }
  pen.globalAlpha = 1
  ring(self, pen, self.data.selected, self.data.ring, 3)
  ring(self, pen, self.hovered, self.ink.text, 1.5)
}

function mark(pen, group, x, y, radius) {
  pen.beginPath()
  if (group === KEPT) pen.arc(x, y, radius, 0, 2 * Math.PI)
  else if (group === FROM_A) pen.rect(x - radius, y - radius, 2 * radius, 2 * radius)
  else {
    const reach = radius * 1.35
    for (const [right, down] of [[0, -reach], [reach, 0], [0, reach], [-reach, 0]]) pen.lineTo(x + right, y + down)
  }
  pen.fill()
}

function ring(self, pen, index, color, width) {
  if (!(index >= 0)) return
  const { x, y, radius } = self.modules
  pen.strokeStyle = color
  pen.lineWidth = width
  pen.beginPath()
  pen.arc(x[index], y[index], radius[index] + 4, 0, 2 * Math.PI)
  pen.stroke()
}

function shade(self, pen) {
  if (!applies(self, "drift")) return
  const both = applies(self, "score")
  const left = self.toX(self.line.drift)
  const top = both ? Math.min(Math.max(self.toY(self.line.score), MARGIN.top), self.height - MARGIN.bottom) : MARGIN.top
  pen.fillStyle = self.ink.accent
  pen.globalAlpha = 0.1
  pen.fillRect(left, top, self.width - MARGIN.right - left, self.height - MARGIN.bottom - top)
  pen.globalAlpha = 1
}

function axes(self, pen) {
  const { left, right, bottom, top } = self.range
  const foot = self.height - MARGIN.bottom
  pen.font = `13px ${self.ink.font}`
  pen.lineWidth = 1
  pen.strokeStyle = self.ink.line
  pen.fillStyle = self.ink.text
  pen.textAlign = "center"
  pen.textBaseline = "top"
  for (const value of ticks(left, right, 6)) {
    rule(pen, self.toX(value), MARGIN.top, self.toX(value), foot)
    pen.fillText(short(value), self.toX(value), foot + 6)
  }
  pen.fillText("mean within-module rank drift", (MARGIN.left + self.width - MARGIN.right) / 2, foot + 24)
  pen.textAlign = "right"
  pen.textBaseline = "middle"
  const heights = self.log ? decades(bottom, top) : ticks(bottom, top, 5)
  for (const value of heights) {
    rule(pen, MARGIN.left, self.toY(value), self.width - MARGIN.right, self.toY(value))
    pen.fillText(short(value), MARGIN.left - 6, self.toY(value))
  }
  pen.save()
  pen.translate(12, (MARGIN.top + foot) / 2)
  pen.rotate(-Math.PI / 2)
  pen.textAlign = "center"
  pen.fillText(`mean score on ${self.data.texts[0]}` + (self.log ? " (log scale)" : ""), 0, 0)
  pen.restore()
}

function rule(pen, x0, y0, x1, y1) {
  pen.beginPath()
  pen.moveTo(x0, y0)
  pen.lineTo(x1, y1)
  pen.stroke()
}

// powers of ten, and also 2 and 5 times these if the range has at most one power
function decades(low, high) {
  const factors = Math.floor(high) > Math.ceil(low) ? [1] : [1, 2, 5]
  const values = []
  for (let power = Math.floor(low); power <= high; power += 1) {
    values.push(...factors.map((factor) => factor * 10 ** power))
  }
  const inside = values.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high)
  return inside.length ? inside : ticks(10 ** low, 10 ** high, 4)
}

function short(value) {
  const size = Math.abs(value)
  if (size < 1e5 && (size >= 1e-3 || value === 0)) return String(Number(value.toPrecision(3)))
  return value.toExponential(2).replace(/\.?0*e\+?/, "e")
}

function moveLines(self) {
  const { drift, score } = self.lines
  const foot = self.height - MARGIN.bottom
  const x = self.toX(self.line.drift)
  const y = Math.min(Math.max(self.toY(self.line.score), MARGIN.top), foot)
  Object.assign(drift.style, { left: `${x}px`, top: `${MARGIN.top}px`, height: `${foot - MARGIN.top}px` })
  Object.assign(score.style, { left: `${MARGIN.left}px`, top: `${y}px`, right: `${MARGIN.right}px` })
  score.classList.toggle("flipped", y > foot - 30)
  for (const [name, sign] of [["drift", "≥"], ["score", "≤"]]) {
    const element = self.lines[name]
    const words = `${self.level[name].toFixed(3)}, ${name} ${sign} ${short(self.line[name])}`
    element.hidden = !applies(self, name)
    element.querySelector(".name").textContent = `γ_${name} ${words}`
    element.setAttribute("aria-valuenow", String(self.level[name]))
    element.setAttribute("aria-valuetext", `quantile ${words}`)
  }
  const label = drift.querySelector(".name")
  if (innerWidth < 560 && !score.hidden) label.textContent += `, score ≤ ${short(self.line.score)}`
  label.style.left = `${Math.min(14, self.width - x - label.offsetWidth)}px`
}

function writeCounts(self) {
  const { counts } = self
  const total = self.modules.drift.length
  const whole = (value) => value.toLocaleString("en-US")
  const texts = {
    kept: `unchanged (${whole(counts.kept)})`,
    a: `adapted, not re-scored (${whole(counts.a)})`,
    b: `adapted, re-scored (${whole(counts.b)})`,
    adapted: `modules adapted: ${whole(counts.adapted)} of ${whole(total)}, neurons: ${whole(counts.neurons)}`,
  }
  for (const [name, text] of Object.entries(texts)) {
    self.root.querySelector(`[data-count="${name}"]`).textContent = text
  }
  for (const [now, name] of [[KEPT, "kept"], [FROM_A, "a"], [FROM_B, "b"]]) {
    self.root.querySelector(`.key-${name}`).style.backgroundColor = self.data.colors[now]
  }
  const { adapted, neurons, a: fromA, b: fromB, rescored } = counts
  Object.assign(self.root.dataset, { adapted, neurons, fromA, fromB, rescored, ...self.level })
}

function valueAt(self, name, event) {
  const box = self.plot.getBoundingClientRect()
  const value = name === "drift" ? self.fromX(event.clientX - box.left) : self.fromY(event.clientY - box.top)
  return levelOf(self.modules.order[name], value)
}

function nearest(self, event) {
  if (!self.modules) return -1
  const box = self.plot.getBoundingClientRect()
  const left = event.clientX - box.left
  const top = event.clientY - box.top
  const { x, y } = self.modules
  let best = -1
  let least = NEAR * NEAR
  for (let i = 0; i < x.length; i += 1) {
    const far = (x[i] - left) ** 2 + (y[i] - top) ** 2
    if (far < least) {
      least = far
      best = i
    }
  }
  return best
}

function point(self, index, event) {
  if (index !== self.hovered) {
    self.hovered = index
    schedule(self)
  }
  self.tip.hidden = index < 0
  if (index < 0 || !event) return
  const { layer, number, size, drift, score, primary, auxiliary, x, y } = self.modules
  self.tip.textContent = [
    `layer ${layer[index]}, module ${number[index]}, neurons: ${size[index].toLocaleString("en-US")}`,
    `drift ${drift[index].toFixed(3)}, mean score ${short(score[index])}`,
    `u ${primary[index].toFixed(3)} on ${self.data.texts[0]}, ${auxiliary[index].toFixed(3)} on ${self.data.texts[1]}`,
    "click to select",
  ].join("\n")
  const right = x[index] > self.width - 250
  self.tip.style.left = `${x[index] + (right ? -12 : 12)}px`
  self.tip.style.top = `${y[index] + (y[index] > self.height - 120 ? -84 : 12)}px`
  self.tip.classList.toggle("left", right)
}

function choose(self, event) {
  const index = nearest(self, event)
  if (index >= 0) self.component.setTriggerValue("module", index)
}
