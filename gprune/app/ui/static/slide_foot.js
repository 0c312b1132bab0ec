// Numbers of the slides, and the keys of a presenter: a remote control sends Page Up and Page Down. Streamlit's own
// shortcuts allow one key per button, and a slider that was just dragged would handle Page Down itself. A press counts
// from the slide that was requested last, which may not be drawn yet.

const ON = ["PageDown", " ", "ArrowRight", "ArrowDown"]
const BACK = ["PageUp", "ArrowLeft", "ArrowUp"]
const WORDS = "input:not([type=range]), textarea, select, [contenteditable=true]"
// keys that move a slider with the focus; Page Up and Page Down always change the slide
const SLIDES = ["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End"]
const AGAIN = 4000 // milliseconds after which a slide that is not drawn is requested again

const instances = new WeakMap()

export default function (component) {
  const root = component.parentElement.querySelector(".slide-foot")
  if (!root || !component.data) return undefined
  let self = instances.get(root)
  if (!self) {
    self = { root, asked: 0, titles: "" }
    self.listens = (event) => key(self, event)
    window.addEventListener("keydown", self.listens, true)
    instances.set(root, self)
  }
  self.component = component
  accept(self, component.data)
  return () => {
    window.removeEventListener("keydown", self.listens, true)
    clearTimeout(self.timer)
    instances.delete(root)
  }
}

function accept(self, { titles, shown }) {
  // an earlier request may be drawn first
  if (shown === self.asked) self.asked = 0
  self.shown = shown
  self.last = titles.length
  const written = JSON.stringify(titles)
  if (written !== self.titles) {
    self.titles = written
    self.root.replaceChildren(...titles.map((title, place) => number(self, place + 1, title)))
  }
  mark(self)
}

function number(self, slide, title) {
  const button = document.createElement("button")
  button.type = "button"
  button.textContent = String(slide)
  button.title = title
  button.onclick = () => go(self, slide)
  return button
}

const now = (self) => self.asked || self.shown

function mark(self) {
  for (const [place, button] of [...self.root.children].entries()) {
    if (place + 1 === now(self)) button.setAttribute("aria-current", "true")
    else button.removeAttribute("aria-current")
  }
}

function go(self, slide) {
  self.asked = slide
  mark(self)
  // the time makes every press a change of state, even for a slide that was requested before
  const tell = () => self.component.setStateValue("asked", { slide, at: Date.now() })
  tell()
  clearTimeout(self.timer)
  self.timer = setTimeout(() => self.asked === slide && tell(), AGAIN)
}

function press(self, slide) {
  if (slide && (self.asked || slide !== self.shown)) go(self, slide)
}

function slideOfKey(self, key) {
  if (ON.includes(key)) return Math.min(now(self) + 1, self.last)
  if (BACK.includes(key)) return Math.max(now(self) - 1, 1)
  if (/^[1-9]$/.test(key)) return Math.min(Number(key), self.last)
  return { Home: 1, End: self.last }[key]
}

function isForSlides(event) {
  if (event.ctrlKey || event.altKey || event.metaKey) return false
  // inside a component with a shadow root, event.target would be the component
  const at = event.composedPath()[0]
  if (at.closest?.(WORDS)) return false
  if (at.closest?.("[role=slider], input[type=range]") && SLIDES.includes(event.key)) return false
  // a button that was reached by Tab is pressed by Space
  return !(event.key === " " && at.closest?.("button")?.matches(":focus-visible"))
}

function key(self, event) {
  const slide = isForSlides(event) ? slideOfKey(self, event.key) : undefined
  if (!slide) return
  event.preventDefault()
  event.stopImmediatePropagation()
  press(self, slide)
}
