// Lines that pointer and keyboard move; joined with counting.js and drawing.js into one module. While a line moves,
// the browser draws everything, at most once per frame. Python receives the values when the line is released.
const STEPS = 200 // steps between the quantiles 0 and 1, as in Python
// number of steps by which a key moves a line
const ARROWS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }
const KEYS = { ...ARROWS, PageDown: -10, PageUp: 10, Home: -STEPS, End: STEPS }
const STILL = 4 // pixels that the pointer may move during a click
const SETTLE = 250 // milliseconds from the last key press until Python receives the values
const ECHO = 4000 // milliseconds for which values from Python are ignored if they are not the latest ones

const instances = new WeakMap()

export default function (component) {
  const root = component.parentElement.querySelector(".dragged")
  if (!root) return undefined
  const self = instances.get(root) ?? mounted(root)
  self.component = component
  if (component.data) {
    self.data = component.data
    accept(self, component.data)
    schedule(self)
  }
  return () => unmount(self)
}

function mounted(root) {
  const self = Object.assign(build(root), { root, dragging: null, pending: null, frame: 0, timer: 0 })
  for (const name of Object.keys(self.lines)) handle(self, name)
  self.watcher = new ResizeObserver(() => schedule(self))
  self.watcher.observe(root)
  instances.set(root, self)
  return self
}

function unmount(self) {
  self.watcher.disconnect()
  cancelAnimationFrame(self.frame)
  clearTimeout(self.timer)
  instances.delete(self.root)
}

function schedule(self) {
  if (self.frame) return
  self.frame = requestAnimationFrame(() => {
    self.frame = 0
    if (self.data && self.plot.clientWidth) draw(self)
  })
}

function move(self, level) {
  self.level = level
  schedule(self)
}

function follow(self, given) {
  const waits = self.pending
  const echoed = waits && Object.keys(given).every((name) => waits[name] === given[name])
  const late = waits && performance.now() - waits.since > ECHO
  if (echoed || late) self.pending = null
  if (!self.dragging && !self.pending) self.level = given
}

function tell(self) {
  clearTimeout(self.timer)
  self.timer = 0
  self.pending = { ...self.level, since: performance.now() }
  // the time makes every release a change of state, even if the line is where it was before
  self.component.setStateValue("lines", { ...self.level, released: Date.now() })
}

const snap = (level) => Math.min(STEPS, Math.max(0, Math.round(level * STEPS))) / STEPS

function handle(self, name) {
  const element = self.lines[name]
  element.onpointerdown = (event) => {
    if (event.button !== 0) return
    event.preventDefault()
    element.focus()
    element.setPointerCapture(event.pointerId)
    self.dragging = { name, x: event.clientX, y: event.clientY, far: false, before: { ...self.level } }
    element.classList.add("held")
  }
  element.onpointermove = (event) => {
    const held = self.dragging
    if (!held || held.name !== name) return
    held.far = held.far || Math.hypot(event.clientX - held.x, event.clientY - held.y) > STILL
    if (!held.far) return
    move(self, { ...self.level, [name]: snap(valueAt(self, name, event)) })
    point(self, -1, null)
  }
  element.onpointerup = (event) => {
    const held = self.dragging
    if (!held) return
    release(self, element)
    if (held.far) tell(self)
    else choose(self, event)
  }
  element.onpointercancel = () => {
    if (self.dragging) move(self, self.dragging.before)
    release(self, element)
  }
  element.onkeydown = (event) => key(self, name, event)
  element.onblur = () => {
    if (self.timer) tell(self)
  }
}

function release(self, element) {
  self.dragging = null
  element.classList.remove("held")
}

function key(self, name, event) {
  const step = KEYS[event.key]
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  event.stopPropagation()
  move(self, { ...self.level, [name]: snap(self.level[name] + step / STEPS) })
  self.pending = { ...self.level, since: performance.now() }
  clearTimeout(self.timer)
  self.timer = setTimeout(() => tell(self), SETTLE)
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough)
  const values = []
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) values.push(k * step)
  return values
}
