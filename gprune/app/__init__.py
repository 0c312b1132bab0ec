"""The pages: draw records and analyses, collect settings, start jobs; the only part that uses Streamlit.

A folder a page: `page.py` draws it, `*_card.py` and `*_form.py` are its larger parts, and `charts.py` makes
its Plotly figures from small arrays without touching Streamlit. What several pages use stands in `ui/`.
"""
