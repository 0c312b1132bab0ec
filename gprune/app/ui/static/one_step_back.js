// Make one press of Back undo one action of the reader. Streamlit adds an entry to the browser's history for every
// change of the address, also when a page completes its own address; such an entry would lead to the same page.
(() => {
  const MARK = "gpruneOneStepBack"
  if (window[MARK]) return
  window[MARK] = true
  const push = history.pushState.bind(history)
  // whether the reader has acted since the last entry of the history
  let acted = false
  for (const kind of ["pointerdown", "keydown"])
    window.addEventListener(kind, () => { acted = true }, true)
  window.addEventListener("popstate", () => { acted = false }, true)
  history.pushState = (state, title, address) => {
    const step = acted || new URL(address ?? location.href, location.href).pathname !== location.pathname
    acted = false
    return step ? push(state, title, address) : history.replaceState(state, title, address)
  }
})()
