// The scatter of modules with two draggable lines. While a line moves, everything is counted here, from typed
// arrays and at most once a frame; Python hears of it when the line is let go, and its numbers are the ones
// that count. Text from outside goes in by textContent alone.

const NEAR = 14 // pixels within which a module is pointed at
const MARGIN = { left: 66, right: 14, top: 26, bottom: 44 }
const BARS = { height: 92, bottom: 30, top: 10 }
const SMALLEST = 4
const KEPT = 0
const FROM_A = 1
const FROM_B = 2

// snaps of 0.005, pages of 0.05, from 0 to 1
const GRID = { steps: 200, page: 10, low: 0, high: 200 }

function build(root) {
  const one = (name) => root.querySelector(name)
  const self = {
    plot: one(".plot"),
    canvas: one(".points"),
    bars: one(".bars"),
    tip: one(".tip"),
    lines: { drift: one(".drift"), score: one(".score") },
    level: { drift: 0.9, score: 0.9 },
    grid: GRID,
    counts: null,
    hovered: -1,
    digest: "",
    draw,
    valueAt,
    still: choose,
    moving: (self) => point(self, -1, null),
  }
  self.plot.onpointermove = (event) => hover(self, event)
  self.plot.onpointerleave = () => point(self, -1, null)
  self.canvas.onclick = (event) => choose(self, event)
  return self
}

// ---- what Python sends

function accept(self, data) {
  if (data.digest !== self.digest) {
    self.digest = data.digest
    self.modules = decode(data)
  }
  follow(self, { drift: data.drift_quantile, score: data.score_quantile })
  self.canvas.setAttribute("aria-label", data.alt)
}

function decode(data) {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer
  const drift = new Float64Array(bytes(data.drift))
  const score = new Float64Array(bytes(data.score))
  return {
    drift,
    score,
    size: new Int32Array(bytes(data.size)),
    layer: new Int32Array(bytes(data.layer)),
    number: new Int32Array(bytes(data.number)),
    primary: new Float64Array(bytes(data.u_primary)),
    auxiliary: new Float64Array(bytes(data.u_auxiliary)),
    fromB: new Uint8Array(bytes(data.from_auxiliary)),
    order: { drift: Float64Array.from(drift).sort(), score: Float64Array.from(score).sort() },
    group: new Uint8Array(drift.length),
    x: new Float32Array(drift.length),
    y: new Float32Array(drift.length),
    radius: new Float32Array(drift.length),
  }
}

// ---- quantiles, as numpy's linear interpolation has them to the last bit

function quantile(sorted, level) {
  const place = (sorted.length - 1) * level
  const before = Math.floor(place)
  const low = sorted[before]
  const high = sorted[Math.min(before + 1, sorted.length - 1)]
  const share = place - before
  const gap = high - low
  return share >= 0.5 ? high - gap * (1 - share) : low + gap * share
}

function levelOf(sorted, value) {
  const last = sorted.length - 1
  if (value <= sorted[0]) return 0
  if (value >= sorted[last]) return 1
  let low = 0
  let high = last
  while (high - low > 1) {
    const middle = (low + high) >> 1
    if (sorted[middle] <= value) low = middle
    else high = middle
  }
  const gap = sorted[high] - sorted[low]
  return (low + (gap > 0 ? (value - sorted[low]) / gap : 0)) / last
}

// ---- the rule

function decide(self) {
  const { drift, score, size, layer, fromB, group, order } = self.modules
  const rule = self.data.selection
  const line = { drift: quantile(order.drift, self.level.drift), score: quantile(order.score, self.level.score) }
  const layers = [new Int32Array(self.data.layers), new Int32Array(self.data.layers)]
  let neurons = 0
  let rescored = 0
  const found = [0, 0, 0]
  for (let i = 0; i < drift.length; i += 1) {
    const sensitive = drift[i] >= line.drift
    const adapted = rule === "drift" ? sensitive : rule === "drift_and_score" && sensitive && score[i] <= line.score
    const now = adapted ? (fromB[i] ? FROM_B : FROM_A) : KEPT
    group[i] = now
    found[now] += 1
    if (now === KEPT) continue
    neurons += size[i]
    if (now === FROM_B) rescored += size[i]
    layers[now - 1][layer[i]] += 1
  }
  self.line = line
  self.counts = { adapted: found[FROM_A] + found[FROM_B], kept: found[KEPT], a: found[FROM_A], b: found[FROM_B], neurons, rescored, layers }
}

function applies(self, name) {
  const rule = self.data.selection
  return rule === "drift_and_score" || (rule === "drift" && name === "drift")
}
