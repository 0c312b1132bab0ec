// Passages as text: everything that comes from a text is set as text content, never as mark-up.
const FAINTEST = 0.05
const FULL = 0.62 // opacity of the strongest token
const SYMBOLS = { "\n": "⏎", "\t": "→", "\r": "␍" }

const flat = (text) => text.replace(/[\n\t\r]/g, (sign) => SYMBOLS[sign])
// the text of a token, with visible signs if it is only white space
const visible = (text) => (text.trim() ? flat(text) : flat(text).replace(/ /g, "␣") || "∅")

function append(parent, name, className, text = "") {
  const element = document.createElement(name)
  element.className = className
  element.textContent = text
  parent.append(element)
  return element
}

function opaque(color, share) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
  return `rgba(${red}, ${green}, ${blue}, ${share.toFixed(3)})`
}

function addToken(text, { text: word, peak, strength, negative, value }, color) {
  // a space before the word is part of the token, but is not coloured
  const space = word.trim() ? word.match(/^ */)[0] : ""
  if (space) append(text, "span", "", space)
  const token = append(text, peak ? "mark" : "span", "token", visible(word.slice(space.length)))
  token.style.backgroundColor = strength < FAINTEST ? "transparent" : opaque(color, FULL * strength)
  token.title = value
  if (negative && strength >= FAINTEST) token.style.borderBottom = `2px dashed ${opaque(color, 0.2 + 0.8 * strength)}`
}

function addPassage(list, { value, where, before, token, after, strength, negative, tokens }, color) {
  const row = append(list, "li", "")
  append(row, "span", "value", value).title = where
  const text = append(row, "span", "text")
  text.dir = "auto"
  for (const piece of tokens) addToken(text, piece, color)
  if (tokens.length) return
  // a single coloured token is always visible; if all tokens are coloured, opacity is proportional to strength
  const seen = (0.12 + 0.5 * strength) / FULL
  append(text, "span", "", flat(before))
  addToken(text, { text: token, peak: true, strength: seen, negative, value: `${value} at ${where}` }, color)
  append(text, "span", "", flat(after))
}

export default function ({ parentElement, data }) {
  const list = parentElement.querySelector(".passages")
  list.setAttribute("aria-label", data.alt)
  list.replaceChildren()
  for (const passage of data.passages) addPassage(list, passage, data.color)
}
