// A passage as text; the colour of a token shows how much worse it is predicted. Strings are set as text content,
// never as markup.

const WORSE = "224, 130, 20"
const BETTER = "128, 115, 172"
const STRONGEST = 0.58

const digests = new WeakMap()

export default function ({ parentElement, data }) {
  const root = parentElement.querySelector(".lens-tokens")
  if (!root || !data || digests.get(root) === data.digest) return
  digests.set(root, data.digest)
  for (const [name, text] of Object.entries(data.legend)) root.querySelector(`.${name}`).textContent = text
  root.querySelector(".ramp").style.background = data.ramp
  fill(root.querySelector(".passage"), { ...data, dense: losses(data.dense), pruned: losses(data.pruned) })
}

function fill(box, { tokens, dense, pruned, limit, label, measure }) {
  const spans = tokens.map((text, i) => colored(text, pruned[i] - dense[i], limit))
  // a line may break before a white-space token, and elsewhere only if a word does not fit
  const breaks = (text) => (/^[·↵⇥]/.test(text) ? [document.createElement("wbr")] : [])
  box.replaceChildren(...spans.flatMap((span, i) => [...breaks(tokens[i]), span]))
  box.scrollTop = 0
  // a title is set when the pointer is on its token
  box.onpointerover = ({ target }) => {
    const i = spans.indexOf(target)
    if (i >= 0 && !target.title) target.title = describe(tokens[i], dense[i], pruned[i], label, measure)
  }
  box.setAttribute("aria-label", `${tokens.length} tokens, coloured by ${measure || "pruned − dense loss"} of ${label}`)
}

function colored(text, worse, limit) {
  const span = document.createElement("span")
  span.textContent = text
  span.classList.toggle("first", Number.isNaN(worse))
  const share = Math.min(Math.abs(worse) / limit, 1) * STRONGEST
  if (share > 0.01) span.style.backgroundColor = `rgba(${worse > 0 ? WORSE : BETTER}, ${share.toFixed(3)})`
  return span
}

function describe(text, dense, pruned, label, measure) {
  const word = `“${text.replace(/\n$/, "")}”`
  const worse = pruned - dense
  if (measure) return `${word}\n${measure}: ${worse.toFixed(3)} nats`
  if (Number.isNaN(worse)) return `${word}: the first token, which has no context`
  const probability = `probability: dense ${percent(dense)}, ${label} ${percent(pruned)}`
  return `${word}\n${probability}\n${Math.abs(worse).toFixed(2)} nats ${worse > 0 ? "worse" : "better"}`
}

function percent(loss) {
  const value = 100 * Math.exp(-loss)
  return `${value >= 0.01 ? value.toPrecision(3) : value.toExponential(1)}%`
}

// 32-bit floats in base64
const losses = (text) => new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer)
