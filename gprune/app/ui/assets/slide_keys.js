// Keys of a presenter that come before the numbers of the slides are there, which listen to them: kept for
// these. The numbers are a component, whose script the browser fetches when the slide has been drawn already.
(() => {
  if (window.gpruneSlideKeys) return
  const KEYS = ["PageDown", " ", "ArrowRight", "ArrowDown", "PageUp", "ArrowLeft", "ArrowUp", "Home", "End"]
  const early = { keys: [], listens: false }
  window.gpruneSlideKeys = early
  window.addEventListener("keydown", (event) => {
    if (early.listens || !document.querySelector(".st-key-slide")) return
    if (event.ctrlKey || event.altKey || event.metaKey || !KEYS.includes(event.key)) return
    event.preventDefault()
    early.keys.push(event.key)
  }, true)
})()
