// Tab leaves a data grid, as it leaves any other control; within the grid the arrow keys move.
// The grid itself takes Tab for the next cell, so that what stands behind it is reached after all its cells.
(() => {
  const GRID = "[data-testid=stDataFrame]"
  const FOCUSABLE =
    "a[href], button, input, select, textarea, canvas[tabindex], summary, [tabindex]:not([tabindex='-1'])"
  const MARK = "gpruneLeavesGrids"

  // elements that can have the focus, in the order of the page, those inside of components too
  function* focusable(root) {
    for (const one of root.querySelectorAll("*")) {
      if (one.matches(FOCUSABLE) && one.tabIndex >= 0 && !one.disabled && one.getClientRects().length) yield one
      if (one.shadowRoot) yield* focusable(one.shadowRoot)
    }
  }

  function beside(grid, from, backwards) {
    const every = [...focusable(document)]
    if (backwards) return every.slice(0, every.indexOf(from)).pop()
    // what stands in a component is after the grid where its host is
    const host = (one) => (one.getRootNode() === document ? one : host(one.getRootNode().host))
    const after = (one) => grid.compareDocumentPosition(host(one)) & Node.DOCUMENT_POSITION_FOLLOWING
    return every.find((one) => !grid.contains(host(one)) && after(one))
  }

  function leave(event) {
    if (event.key !== "Tab" || event.altKey || event.ctrlKey || event.metaKey) return
    const from = event.target
    const grid = from instanceof Element && from.closest(GRID)
    // buttons of its toolbar and fields of its search are left as they are everywhere
    if (!grid || !from.matches("canvas, canvas *")) return
    const canvas = from.closest("canvas")
    const next = beside(grid, canvas, event.shiftKey)
    if (!next) return
    event.preventDefault()
    event.stopImmediatePropagation()
    next.focus()
  }

  if (!window[MARK]) {
    window[MARK] = true
    window.addEventListener("keydown", leave, true)
  }
})()
