// Passages as text: everything that comes from a text is set as text content, never as mark-up.
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

function tint(color, strength) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
  return `rgba(${red}, ${green}, ${blue}, ${(0.12 + 0.5 * strength).toFixed(3)})`
}

function passage(list, one, color) {
  const row = element("li", list)
  element("span", row, "value", one.value).title = one.where
  const text = element("span", row, "text")
  text.dir = "auto"
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
