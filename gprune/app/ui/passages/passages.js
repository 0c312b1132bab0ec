// Passages as text: everything that comes from a text is set as text content, never as mark-up.
const FAINTEST = 0.05
const SHOWN = { "\n": "⏎", "\t": "→", "\r": "␍" }

// white space that would not be seen where a token is nothing else
function visible(text) {
  const line = text.replace(/[\n\t\r]/g, (one) => SHOWN[one])
  return line.trim() === "" ? line.replace(/ /g, "␣") || "∅" : line
}

function flat(text) {
  return text.replace(/[\n\t\r]/g, (one) => SHOWN[one])
}

function element(name, parent, kind, text) {
  const made = document.createElement(name)
  if (kind) made.className = kind
  if (text !== undefined) made.textContent = text
  parent.appendChild(made)
  return made
}

function opaque(color, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
  return `rgba(${red}, ${green}, ${blue}, ${share.toFixed(3)})`
}

// a marked token is seen however weak it is; among others colour is in proportion to strength
const tint = (color, strength) => opaque(color, 0.12 + 0.5 * strength)
const shade = (color, strength) => opaque(color, 0.62 * strength)

// one of the tokens of a passage in which all have their colours
function token_of(text, piece, color) {
  const space = piece.text.trim() === "" ? "" : piece.text.match(/^ */)[0]
  if (space) element("span", text, "", space)
  const own = piece.text.slice(space.length)
  const made = element(piece.peak ? "mark" : "span", text, "token", piece.text.trim() === "" ? visible(own) : flat(own))
  made.style.backgroundColor = piece.strength < FAINTEST ? "transparent" : shade(color, piece.strength)
  made.title = piece.value
  if (piece.negative && piece.strength >= FAINTEST) {
    made.style.borderBottom = `2px dashed ${opaque(color, 0.2 + 0.8 * piece.strength)}`
  }
}

function passage(list, one, color) {
  const row = element("li", list)
  element("span", row, "value", one.value).title = one.where
  const text = element("span", row, "text")
  text.dir = "auto"
  if (one.tokens.length) {
    for (const piece of one.tokens) token_of(text, piece, color)
    return
  }
  // the space before a word belongs to its token, and looks like one of the line where it is marked
  const space = one.token.trim() === "" ? "" : one.token.match(/^ */)[0]
  element("span", text, "", flat(one.before) + space)
  const token = element("mark", text, "", visible(one.token.slice(space.length)))
  token.style.backgroundColor = tint(color, one.strength)
  token.title = `${one.value} at ${one.where}`
  if (one.negative) token.style.borderBottom = `2px dashed ${color}`
  element("span", text, "", flat(one.after))
}

export default function ({ parentElement, data }) {
  const list = parentElement.querySelector(".passages")
  list.setAttribute("aria-label", data.alt)
  list.replaceChildren()
  for (const one of data.passages) passage(list, one, data.color)
}
