"""Page *Compare*: methods, changed answers, speed and studies."""

from gprune.app.pages import comparison, flipped_questions, speed_export, studies
from gprune.app.ui import address

address.show(
    {
        "compare": comparison.show,
        "questions": flipped_questions.show,
        "speed": speed_export.show,
        "studies": studies.show,
    }
)
