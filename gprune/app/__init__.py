"""The app: its pages show results, collect settings and start jobs. No other package uses Streamlit.

`pages/` draws the pages, and `figures/` makes their Plotly figures without Streamlit. Code shared by several pages
is in `ui/`.
"""
