// The keys of a slide, for a presenter who has clicked nowhere: a remote control sends Page Up and Page Down.
// Streamlit's own shortcuts know one key a button, and a slider that was just dragged would take Page Down.
(() => {
  const MARK = "gpruneSlideKeys"
  if (window[MARK]) return
  window[MARK] = true
  const ON = ["PageDown", " ", "ArrowRight", "ArrowDown"]
  const BACK = ["PageUp", "ArrowLeft", "ArrowUp"]
  const WORDS = "input:not([type=range]), textarea, select, [contenteditable=true]"
  // keys with which a slider is moved that has the focus; Page Up and Page Down stay the presenter's
  const SLIDES = ["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End"]
  const button = (number) => document.querySelector(`.st-key-slide_to_${number} button`)

  function number(key) {
    const shown = document.querySelector(".st-key-slide [data-testid=stBaseButton-primary]")
    const now = Number(shown?.textContent)
    // the containers are counted: a button with a help text is two in the document, one in the other
    const last = document.querySelectorAll("[class*=st-key-slide_to_]").length
    if (ON.includes(key)) return Math.min(now + 1, last)
    if (BACK.includes(key)) return Math.max(now - 1, 1)
    return { Home: 1, End: last }[key]
  }

  function ours(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !button(1)) return false
    const at = event.target
    if (at.closest?.(WORDS)) return false
    if (at.closest?.("[role=slider], input[type=range]") && SLIDES.includes(event.key)) return false
    // who came to a button by Tab presses it by Space
    return !(event.key === " " && at.closest?.("button")?.matches(":focus-visible"))
  }

  window.addEventListener("keydown", (event) => {
    const wanted = ours(event) ? number(event.key) : undefined
    if (!wanted) return
    event.preventDefault()
    event.stopImmediatePropagation()
    button(wanted).click()
  }, true)
})()
