// Lines that pointer and keyboard move; each component's own script comes after this and is one module with it.
// While a line moves, everything is drawn here, at most once a frame; Python hears of it when the line is let
// go, and its numbers are the ones that count.
//
// A component's script declares accept(self, data), for what Python sends, and build(root), which gives: plot (the
// element that its lines lie in), lines (elements by name), level (values by name), grid ({ steps, page, low, high }:
// snaps of 1, of PageUp, and the least and greatest, in snaps), and functions draw(self), valueAt(self, name, event), still(self, event) for a pointer that has
// not moved, and moving(self) for one that has.

const STILL = 4 // pixels that a pointer may move and still click
const SETTLE = 250 // milliseconds after the last key until Python is told
const ECHO = 4000 // milliseconds for which an older answer of Python's is not believed

const instances = new WeakMap()

// ---- life

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
  const self = Object.assign(build(root), { root, dragging: null, pending: null, frame: 0, timer: 0, width: 0, height: 0 })
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
    if (self.data && self.plot.clientWidth) self.draw(self)
  })
}

function move(self, level) {
  self.level = level
  schedule(self)
}

// ---- whose value counts

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
  // the moment makes every release a change, also one to where the line has been before
  self.component.setStateValue("lines", { ...self.level, released: Date.now() })
}

function snap({ grid }, level) {
  return Math.min(grid.high, Math.max(grid.low, Math.round(level * grid.steps))) / grid.steps
}

// ---- hands

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
    move(self, { ...self.level, [name]: snap(self, self.valueAt(self, name, event)) })
    self.moving(self)
  }
  element.onpointerup = (event) => {
    const held = self.dragging
    if (!held) return
    release(self, element)
    if (held.far) tell(self)
    else self.still(self, event)
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
  const { steps, page, low, high } = self.grid
  const now = Math.round(self.level[name] * steps)
  const wanted = {
    ArrowLeft: now - 1,
    ArrowDown: now - 1,
    ArrowRight: now + 1,
    ArrowUp: now + 1,
    PageDown: now - page,
    PageUp: now + page,
    Home: low,
    End: high,
  }[event.key]
  if (wanted === undefined || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  event.stopPropagation()
  move(self, { ...self.level, [name]: snap(self, wanted / steps) })
  self.pending = { ...self.level, since: performance.now() }
  clearTimeout(self.timer)
  self.timer = setTimeout(() => tell(self), SETTLE)
}

// ---- axes

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough)
  const found = []
  for (let k = Math.ceil(low / step); k * step <= high; k += 1) found.push(k * step)
  return found
}

// a line that stands upright, over the whole height of the plot; its name goes to the side with room
function stand(self, element, x, margin, room) {
  element.style.left = `${x}px`
  element.style.top = `${margin.top}px`
  element.style.height = `${self.height - margin.bottom - margin.top}px`
  element.classList.toggle("flipped", x > self.width - room)
}

function reach(element, low, high) {
  element.setAttribute("aria-valuemin", String(low))
  element.setAttribute("aria-valuemax", String(high))
}

function announce(element, level, name, spoken) {
  element.querySelector(".name").textContent = name
  element.setAttribute("aria-valuenow", String(level))
  element.setAttribute("aria-valuetext", spoken)
}
