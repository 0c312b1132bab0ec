"""Small figures of the help."""

import plotly.graph_objects as go

from gprune.app.ui.chart_style import GREY, METHOD_COLORS, label, style


def kept(both: int, ours: int, base: int, other: str) -> go.Figure:
    """Neurons kept by both methods and by one only, as one bar.

    `ours` are kept by GPrune alone, `base` by the method `other` alone.
    """
    figure = go.Figure()
    parts = (
        ("only GPrune", ours, METHOD_COLORS["gprune"]),
        ("both", both, GREY),
        (f"only {label(other)}", base, METHOD_COLORS.get(other, GREY)),
    )
    for name, count, color in parts:
        figure.add_bar(
            x=[count],
            y=[""],
            orientation="h",
            name=name,
            marker={"color": color},
            text=[f"{count:,}"],
            textposition="inside",
            insidetextanchor="middle",
            hovertemplate=f"{name}: %{{x:,}} neurons<extra></extra>",
        )
    style(figure, "neurons", "", 150, barmode="stack", margin={"l": 8, "r": 8, "t": 28, "b": 44})
    figure.update_yaxes(visible=False)
    return figure
