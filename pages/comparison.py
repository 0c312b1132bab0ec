"""Methods side by side: perplexity, which model to take, answers and speed."""

from gprune.app.pages.comparison import page as comparison
from gprune.app.pages.decision import page as decision
from gprune.app.pages.flipped_questions import page as questions
from gprune.app.pages.speed_export import page as speed
from gprune.app.ui import places

places.show({"compare": comparison.show, "decide": decision.show, "questions": questions.show, "speed": speed.show})
