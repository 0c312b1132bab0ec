"""The pages: draw records and analyses, collect settings, start jobs; the only part that uses Streamlit."""
