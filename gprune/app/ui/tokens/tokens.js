// A passage as text, its tokens coloured by how much worse they are predicted. Strings become the text of elements,
// and nothing that is sent becomes markup.

const WORSE = "224, 130, 20"
const BETTER = "128, 115, 172"
const STRONGEST = 0.58

function legend(root, label, limit) {
  const end = limit.toFixed(limit < 1 ? 2 : 1)
  const parts = [
    ["strong", label, "label"],
    ["span", `better −${end}`],
    ["i", "", "ramp"],
    ["span", `+${end} worse`],
    ["span", "nats, pruned − dense"],
  ]
  const made = parts.map(([kind, words, name = ""]) => {
    const part = document.createElement(kind)
    part.textContent = words
    part.className = name
    return part
  })
  root.querySelector(".legend").replaceChildren(...made)
}

// the elements of tokens, in order, put into a box
function spans(box, tokens) {
  const made = document.createDocumentFragment()
  const found = tokens.map((text) => {
    // a line may break before a space, and nowhere else unless it has to
    if (/^[·↵⇥]/.test(text)) made.append(document.createElement("wbr"))
    const span = document.createElement("span")
    span.textContent = text
    made.append(span)
    return span
  })
  box.replaceChildren(made)
  box.scrollTop = 0
  return found
}

// colours tokens; what is said of one is written when it is pointed at
function paint(box, found, { tokens, dense, pruned, limit, label }) {
  found.forEach((span, token) => {
    colour(span, dense[token], pruned[token], limit)
    span.removeAttribute("title")
  })
  box.onpointerover = ({ target }) => {
    const token = found.indexOf(target)
    if (token >= 0 && !target.title) target.title = described(tokens[token], dense[token], pruned[token], label)
  }
  box.setAttribute("aria-label", `${tokens.length} tokens, coloured by pruned − dense loss of ${label}`)
}

function colour(span, dense, pruned, limit) {
  const worse = pruned - dense
  span.classList.toggle("first", Number.isNaN(worse))
  const share = Number.isNaN(worse) ? 0 : Math.min(Math.abs(worse) / limit, 1) * STRONGEST
  span.style.backgroundColor = share > 0.01 ? `rgba(${worse > 0 ? WORSE : BETTER}, ${share.toFixed(3)})` : ""
}

function described(text, dense, pruned, label) {
  const shown = text.replace(/\n$/, "")
  const worse = pruned - dense
  if (Number.isNaN(worse)) return `“${shown}”: the first token, which nothing foretells`
  return [
    `“${shown}”`,
    `probability: dense ${percent(dense)}, ${label} ${percent(pruned)}`,
    `${Math.abs(worse).toFixed(2)} nats ${worse > 0 ? "worse" : "better"}`,
  ].join("\n")
}

function percent(loss) {
  const value = 100 * Math.exp(-loss)
  return `${value >= 0.01 ? value.toPrecision(3) : value.toExponential(1)} %`
}

// 32-bit floats in base64
function losses(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
  const view = new DataView(bytes.buffer)
  return Float32Array.from({ length: bytes.length / 4 }, (_, place) => view.getFloat32(4 * place, true))
}
const drawn = new WeakMap()

export default function (component) {
  const root = component.parentElement.querySelector(".lens-tokens")
  const data = component.data
  if (!root || !data || drawn.get(root) === data.digest) return undefined
  drawn.set(root, data.digest)
  legend(root, data.label, data.limit)
  const box = root.querySelector(".passage")
  paint(box, spans(box, data.tokens), { ...data, dense: losses(data.dense), pruned: losses(data.pruned) })
  return undefined
}
