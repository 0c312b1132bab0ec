"""Figures: functions from small arrays to Plotly figures; none of them touches Streamlit."""
