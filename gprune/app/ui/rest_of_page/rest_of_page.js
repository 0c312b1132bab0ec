// Asks for the rest of a page once someone goes towards it.

const SETTLED = 600 // milliseconds after which what stands above has its height
const HEARD = 300 // milliseconds after which Streamlit hears a component that has just been made
const AGAIN = 3000 // milliseconds after which a question that was not heard is asked once more
const KEYS = ["PageDown", "End", " ", "ArrowDown", "Tab"]
const GOES = ["wheel", "touchmove", "scroll", "keydown", "beforeprint"]

const instances = new WeakMap()

export default function (component) {
  const mark = component.parentElement.querySelector(".rest-of-page")
  if (!mark) return undefined
  let self = instances.get(mark)
  if (!self) instances.set(mark, (self = watching(mark)))
  self.component = component
  return () => {
    self.stop()
    clearTimeout(self.timer)
    instances.delete(mark)
  }
}

function watching(mark) {
  const self = {}
  const ask = () => {
    self.component.setTriggerValue("reached", true)
    clearTimeout(self.timer)
    self.timer = setTimeout(ask, AGAIN)
  }
  const goes = (event) => {
    if (event.type === "keydown" && !KEYS.includes(event.key)) return
    self.stop()
    // one who goes there at once is heard as soon as Streamlit listens
    clearTimeout(self.timer)
    self.timer = setTimeout(ask, Math.max(0, begun + HEARD - performance.now()))
  }
  const begun = performance.now()
  const seen = new IntersectionObserver((changes) => changes.some((one) => one.isIntersecting) && goes({}))
  self.stop = () => {
    seen.disconnect()
    for (const kind of GOES) window.removeEventListener(kind, goes, true)
  }
  for (const kind of GOES) window.addEventListener(kind, goes, { capture: true, passive: true })
  mark.dataset.listens = "yes"
  self.timer = setTimeout(() => seen.observe(mark), SETTLED)
  return self
}
