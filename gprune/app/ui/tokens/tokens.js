// A passage as two models read it; one module with colours.js.

const drawn = new WeakMap()

export default function (component) {
  const root = component.parentElement.querySelector(".lens-tokens")
  const data = component.data
  if (!root || !data || drawn.get(root) === data.digest) return undefined
  drawn.set(root, data.digest)
  legend(root, data.label, data.limit)
  passage(root.querySelector(".passage"), data)
  return undefined
}

function passage(box, data) {
  const dense = losses(data.dense)
  const pruned = losses(data.pruned)
  spans(box, data.tokens).forEach((span, place) => {
    colour(span, dense[place], pruned[place], data.limit)
    span.title = described(data.tokens[place], dense[place], pruned[place], data.label)
  })
  box.setAttribute("aria-label", `${data.tokens.length} tokens, coloured by pruned − dense loss of ${data.label}`)
}
