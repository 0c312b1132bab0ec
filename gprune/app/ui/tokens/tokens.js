// Draws tokens as text: strings become the text of elements, and nothing that is sent becomes markup.

const WORSE = "224, 130, 20"
const BETTER = "128, 115, 172"
const STRONGEST = 0.58
const drawn = new WeakMap()

export default function (component) {
  const root = component.parentElement.querySelector(".lens-tokens")
  const data = component.data
  if (!root || !data || drawn.get(root) === data.digest) return undefined
  drawn.set(root, data.digest)
  legend(root, data)
  passage(root.querySelector(".passage"), data)
  return undefined
}

function legend(root, data) {
  const end = data.limit.toFixed(data.limit < 1 ? 2 : 1)
  root.querySelector(".label").textContent = data.label
  root.querySelector(".better-end").textContent = `better −${end}`
  root.querySelector(".worse-end").textContent = `+${end} worse`
}

function passage(box, data) {
  const dense = losses(data.dense)
  const pruned = losses(data.pruned)
  const made = document.createDocumentFragment()
  data.tokens.forEach((text, place) => {
    // a line may break before a space, and nowhere else unless it has to
    if (/^[·↵⇥]/.test(text)) made.append(document.createElement("wbr"))
    made.append(token(text, dense[place], pruned[place], data))
  })
  box.replaceChildren(made)
  box.scrollTop = 0
  box.setAttribute("aria-label", `${data.tokens.length} tokens, coloured by pruned − dense loss of ${data.label}`)
}

function token(text, dense, pruned, data) {
  const span = document.createElement("span")
  span.textContent = text
  const shown = text.replace(/\n$/, "")
  if (Number.isNaN(dense) || Number.isNaN(pruned)) {
    span.className = "first"
    span.title = `“${shown}”: the first token, which nothing foretells`
    return span
  }
  const worse = pruned - dense
  const share = Math.min(Math.abs(worse) / data.limit, 1) * STRONGEST
  if (share > 0.01) span.style.backgroundColor = `rgba(${worse > 0 ? WORSE : BETTER}, ${share.toFixed(3)})`
  span.title = [
    `“${shown}”`,
    `probability: dense ${percent(dense)}, ${data.label} ${percent(pruned)}`,
    `${Math.abs(worse).toFixed(2)} nats ${worse > 0 ? "worse" : "better"}`,
  ].join("\n")
  return span
}

function percent(loss) {
  const value = 100 * Math.exp(-loss)
  return `${value >= 0.01 ? value.toPrecision(3) : value.toExponential(1)} %`
}

function losses(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
  const view = new DataView(bytes.buffer)
  return Array.from({ length: bytes.length / 4 }, (_, place) => view.getFloat32(4 * place, true))
}
