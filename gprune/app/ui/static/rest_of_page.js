// Request the rest of a page when the reader scrolls by pointer or key, or when its marker is in view.

const SETTLED = 600 // milliseconds after which the content above has its final height
const AGAIN = 3000 // milliseconds after which a request that Streamlit did not receive is repeated

const KEYS = ["PageDown", "End", " ", "ArrowDown", "Tab"] // before a click, keys scroll no part of Streamlit's page

const instances = new WeakMap()

export default function (component) {
  const mark = component.parentElement.querySelector(".rest-of-page")
  if (!mark) return undefined
  if (!instances.has(mark)) instances.set(mark, watch(mark))
  const self = instances.get(mark)
  self.component = component
  return () => {
    self.stop()
    clearTimeout(self.timer)
    instances.delete(mark)
  }
}

function watch(mark) {
  const self = {}
  const ask = () => {
    self.stop()
    clearTimeout(self.timer)
    self.component.setTriggerValue("reached", true)
    self.timer = setTimeout(ask, AGAIN)
  }
  const observer = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && ask())
  const onKey = (event) => KEYS.includes(event.key) && ask()
  self.stop = () => {
    observer.disconnect()
    window.removeEventListener("scroll", ask, true)
    window.removeEventListener("keydown", onKey, true)
  }
  window.addEventListener("scroll", ask, true)
  window.addEventListener("keydown", onKey, true)
  self.timer = setTimeout(() => observer.observe(mark), SETTLED)
  return self
}
