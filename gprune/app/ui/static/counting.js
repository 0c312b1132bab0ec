// The scatter of modules: it counts modules while a line moves, from typed arrays. Text from outside is set as
// textContent, never as markup.

const NEAR = 14 // largest distance in pixels of the pointer from the module that it points at
const MARGIN = { left: 66, right: 14, top: 26, bottom: 44 }
const SMALLEST = 4
const KEPT = 0
const FROM_A = 1
const FROM_B = 2

function build(root) {
  const part = (name) => root.querySelector(name)
  const self = {
    plot: part(".plot"),
    canvas: part(".points"),
    tip: part(".tip"),
    lines: { drift: part(".drift"), score: part(".score") },
    level: { drift: 0.9, score: 0.9 },
    counts: null,
    hovered: -1,
    digest: "",
  }
  self.plot.onpointermove = (event) => self.dragging || point(self, nearest(self, event), event)
  self.plot.onpointerleave = () => point(self, -1, null)
  self.canvas.onclick = (event) => choose(self, event)
  return self
}

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

// the same bits as numpy's quantile with linear interpolation
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

function decide(self) {
  const { drift, score, size, fromB, group, order } = self.modules
  const rule = self.data.selection
  const line = { drift: quantile(order.drift, self.level.drift), score: quantile(order.score, self.level.score) }
  let neurons = 0
  let rescored = 0
  const modules = [0, 0, 0]
  for (let i = 0; i < drift.length; i += 1) {
    const sensitive = drift[i] >= line.drift
    const adapted = rule === "drift" ? sensitive : rule === "drift_and_score" && sensitive && score[i] <= line.score
    const now = adapted ? (fromB[i] ? FROM_B : FROM_A) : KEPT
    group[i] = now
    modules[now] += 1
    if (now !== KEPT) neurons += size[i]
    if (now === FROM_B) rescored += size[i]
  }
  self.line = line
  const [kept, a, b] = modules
  self.counts = { adapted: a + b, kept, a, b, neurons, rescored }
}

function applies(self, name) {
  const rule = self.data.selection
  return rule === "drift_and_score" || (rule === "drift" && name === "drift")
}
