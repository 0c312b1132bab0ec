// What the pointer does to modules, and where it puts lines; one module with counting.js.

// ---- where a line is put

function valueAt(self, name, event) {
  const box = self.plot.getBoundingClientRect()
  const value = name === "drift" ? self.fromX(event.clientX - box.left) : self.fromY(event.clientY - box.top)
  return levelOf(self.modules.order[name], value)
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
