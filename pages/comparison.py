"""Methods side by side: perplexity, answers and speed."""

from gprune.app.pages.comparison import page as comparison
from gprune.app.pages.flipped_questions import page as questions
from gprune.app.pages.speed_export import page as speed
from gprune.app.ui import places

places.show({"compare": comparison.show, "questions": questions.show, "speed": speed.show})
