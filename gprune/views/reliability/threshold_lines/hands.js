// What pointer and keyboard do to lines and modules; one module with counting.js.

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
    const box = self.plot.getBoundingClientRect()
    const value = name === "drift" ? self.fromX(event.clientX - box.left) : self.fromY(event.clientY - box.top)
    self.level = { ...self.level, [name]: snap(levelOf(self.modules.order[name], value)) }
    point(self, -1, null)
    schedule(self)
  }
  element.onpointerup = (event) => {
    const held = self.dragging
    if (!held) return
    release(self, element)
    if (held.far) tell(self)
    else choose(self, event)
  }
  element.onpointercancel = () => {
    if (self.dragging) self.level = self.dragging.before
    release(self, element)
    schedule(self)
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
  const now = Math.round(self.level[name] * STEP)
  const wanted = {
    ArrowLeft: now - 1,
    ArrowDown: now - 1,
    ArrowRight: now + 1,
    ArrowUp: now + 1,
    PageDown: now - PAGE,
    PageUp: now + PAGE,
    Home: 0,
    End: STEP,
  }[event.key]
  if (wanted === undefined || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  event.stopPropagation()
  self.level = { ...self.level, [name]: snap(wanted / STEP) }
  self.pending = { ...self.level, since: performance.now() }
  schedule(self)
  clearTimeout(self.timer)
  self.timer = setTimeout(() => tell(self), SETTLE)
}

function tell(self) {
  clearTimeout(self.timer)
  self.timer = 0
  self.pending = { ...self.level, since: performance.now() }
  // the moment makes every release a change, also one to where the line has been before
  self.component.setStateValue("lines", { ...self.level, released: Date.now() })
}

// ---- modules under the pointer

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

function hover(self, event) {
  if (self.dragging) return
  point(self, nearest(self, event), event)
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
    `layer ${layer[index]}, module ${number[index]}, ${size[index].toLocaleString("en-US")} neurons`,
    `drift ${drift[index].toFixed(3)}, mean score ${short3(score[index])}`,
    `u on A ${primary[index].toFixed(3)}, u on B ${auxiliary[index].toFixed(3)}`,
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
