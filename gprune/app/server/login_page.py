"""The small pages of those who stay outside: plain HTML without scripts, in the look of the app."""

from collections.abc import Iterable
from html import escape

WRONG = "Your token is not that of this server, which makes a new one whenever it starts."
UNKNOWN = "The server was started anew.\nReload this page, and enter the token\nthat the server has printed."
"""what a page that was open meanwhile shows, where long lines are cut; otherwise nobody reads it"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'"
"""what these pages may load: nothing but their own style"""

_STYLE = """
:root {color-scheme: light dark; --back: #ffffff; --field: #f3f5f8; --text: #1b2430; --line: #d5dbe3;
  --main: #0068a3; --bad: #b3261e;}
@media (prefers-color-scheme: dark) {:root {--back: #11161d; --field: #1a212b; --text: #e6eaf0;
  --line: #3d4957; --main: #2f8fc9; --bad: #ff8a80;}}
body {margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--back);
  color: var(--text); font: 16px/1.5 "Source Sans 3", "Source Sans Pro", system-ui, sans-serif;}
main {box-sizing: border-box; width: min(30rem, 100vw); padding: 1.6rem;}
h1 {font-size: 1.9rem; line-height: 1.2; margin: 0 0 .6rem;}
p {margin: 0 0 1rem;} label {display: block; font-size: .875rem; margin: 0 0 .3rem;}
input {box-sizing: border-box; width: 100%; padding: .5rem .75rem; font: inherit; color: inherit;
  background: var(--field); border: 1px solid var(--line); border-radius: .4rem;}
button {margin-top: 1rem; padding: .45rem 1rem; font: inherit; color: #ffffff; background: #0068a3;
  border: 1px solid #0068a3; border-radius: .4rem; cursor: pointer;}
input:focus-visible, button:focus-visible {outline: 2px solid var(--main); outline-offset: 2px;}
code {font-size: .9em; background: var(--field); border-radius: .25rem; padding: .1em .3em;}
[role=alert] {color: var(--bad);}
"""


def token_form(action: str, fields: Iterable[tuple[str, str]], problem: str = "") -> str:
    """Asks for the token and then leads to the page that was wanted."""
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields
    )
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    return _page(
        f"""<h1>GPrune Studio</h1>
<p>This page opens with the server's token. It stands in the address that the server printed when it was
started, behind <code>token=</code>; the whole address will do as well.</p>{alert}
<form method="get" action="{escape(action)}">{hidden}
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required autofocus>
<button type="submit">Open</button></form>"""
    )


def once_more(address: str) -> str:
    """Opens an address again from this server's own page.

    Browsers leave the cookie out where a page elsewhere led here, and send it where this one does.
    """
    again = f'<meta http-equiv="refresh" content="0; url={escape(address)}">'
    return _page(f'<p><a href="{escape(address)}">Open GPrune Studio</a></p>', again)


def _page(body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>GPrune Studio</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"{head}<style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
