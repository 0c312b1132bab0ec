// A passage that is coloured for the retention at which a slider stands, while it moves; one module with
// dragging.js and tokens/colours.js. The slider stops only where the passage was read, so that every colour and
// number was computed at the retention that stands beside it. Nothing is interpolated.

// sizes of letters, in those of the frame, and numbers of columns that are tried until the passage fits: lines of
// code are short, and stand beside each other rather than in smaller letters
const LETTERS = [1.6, 1.4, 1.2, 1.05, 0.9, 0.8, 0.72]
const COLUMNS = [1, 2, 3]

function build(root) {
  const one = (name) => root.querySelector(name)
  const self = {
    plot: one(".plot"),
    marks: one(".stops"),
    ends: [one(".low"), one(".high")],
    words: one(".lens-tokens"),
    box: one(".passage"),
    told: one(".told"),
    lines: { retention: one(".retention") },
    level: { retention: 0.5 },
    stops: [0.5],
    spans: [],
    tokens: "",
    fitted: "",
    coloured: "",
    draw,
    valueAt: (self, name, event) => {
      const box = self.plot.getBoundingClientRect()
      const [low, high] = self.data.reach
      return low + ((event.clientX - box.left) / box.width) * (high - low)
    },
    still: () => {},
    moving: () => {},
  }
  // a press beside the grip moves it there, and it can be dragged on
  self.plot.onpointerdown = (event) => {
    const grip = self.lines.retention
    if (grip.contains(event.target) || event.button !== 0) return
    grip.onpointerdown(event)
    self.dragging.far = true
    grip.onpointermove(event)
  }
  return self
}

function accept(self, data) {
  self.dense = losses(data.dense)
  self.losses = losses(data.losses)
  self.stops = data.levels.map((level) => level.retention)
  self.root.classList.toggle("fills", data.fills)
  reach(self.lines.retention, ...data.reach)
  self.ends.forEach((end, place) => (end.textContent = kept(data.reach[place])))
  follow(self, { retention: data.retention })
  const tokens = JSON.stringify(data.tokens)
  if (tokens !== self.tokens) {
    self.tokens = tokens
    self.spans = spans(self.box, data.tokens)
    self.fitted = ""
  }
  self.coloured = ""
}

const kept = (level) => `${Number((100 * level).toFixed(1))} %`

// ---- drawing

function draw(self) {
  const place = self.stops.indexOf(snap(self, self.level.retention))
  scale(self, place)
  colours(self, place)
  if (self.data.fills) fit(self)
  else self.told.textContent = self.data.told
}

function scale(self, place) {
  const { data } = self
  const [low, high] = data.reach
  const share = (level) => `${(100 * (level - low)) / (high - low)}%`
  const at = data.levels[place]
  const element = self.lines.retention
  element.style.left = share(at.retention)
  announce(element, at.retention, kept(at.retention), `${kept(at.retention)} kept, ${at.change}`)
  const marks = self.stops.map((level) => {
    const mark = document.createElement("i")
    mark.style.left = share(level)
    return mark
  })
  if (marks.length !== self.marks.childElementCount) self.marks.replaceChildren(...marks)
}

function colours(self, place) {
  const { data } = self
  const at = data.levels[place]
  if (self.coloured === at.label) return
  self.coloured = at.label
  legend(self.words, `${at.label}: ${at.change}`, data.limit)
  const pruned = self.losses.subarray(place * self.spans.length, (place + 1) * self.spans.length)
  paint(self.box, self.spans, { ...data, dense: self.dense, pruned, label: at.label })
  self.root.dataset.retention = String(at.retention)
}

// ---- as large as fits, and as many tokens as fit in the smallest letters

function fit(self) {
  const { box, spans, data } = self
  const size = `${box.clientWidth} ${box.clientHeight} ${data.told}`
  if (self.fitted === size) return
  self.fitted = size
  for (const span of spans) span.hidden = false
  const fits = () => box.scrollHeight <= box.clientHeight + 1 && box.scrollWidth <= box.clientWidth + 1
  const tried = LETTERS.flatMap((letters) => COLUMNS.map((columns) => ({ letters, columns })))
  tried.find(({ letters, columns }) => {
    box.style.fontSize = `${letters}em`
    box.style.columnCount = String(columns)
    return fits()
  })
  const count = fits() ? spans.length : shown(self)
  spans.forEach((span, token) => (span.hidden = token >= count))
  const few = count < spans.length ? `The first ${count} of ${spans.length} tokens are shown. ` : ""
  self.told.textContent = few + data.told
}

// how many tokens end within the box
function shown(self) {
  const { bottom, right } = self.box.getBoundingClientRect()
  const edge = bottom - parseFloat(getComputedStyle(self.box).paddingBottom)
  const beyond = self.spans.findIndex((span) => {
    const place = span.getBoundingClientRect()
    return place.bottom > edge || place.left >= right
  })
  return beyond < 0 ? self.spans.length : beyond
}
