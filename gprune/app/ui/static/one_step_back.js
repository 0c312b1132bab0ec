// Has Back leave a page by one press: what a page adds to its own address is no step of the history.
// Streamlit adds an entry to the browser's history for every change of the address. A page that was just opened
// completes its address, as by the job that it shows, and Back would first take only that away.
(() => {
  const MARK = "gpruneOneStepBack"
  if (window[MARK]) return
  window[MARK] = true
  const push = history.pushState.bind(history)
  // whether nobody has touched anything since the page was opened
  let untouched = true
  for (const kind of ["pointerdown", "keydown"])
    window.addEventListener(kind, () => { untouched = false }, true)
  history.pushState = (state, title, address) => {
    const same = new URL(address ?? location.href, location.href).pathname === location.pathname
    if (same && untouched) return history.replaceState(state, title, address)
    if (!same) untouched = true
    return push(state, title, address)
  }
})()
