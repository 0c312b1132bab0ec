"""The pages: draw records and analyses, collect settings, start jobs; the only part that uses Streamlit.

`pages/` draws the pages, and `figures/` makes their Plotly figures without Streamlit. Code shared by several pages
is in `ui/`.
"""
