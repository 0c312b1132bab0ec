"""How each page is to be read, what it does not say, and its keys."""

READ: dict[str, tuple[str, str]] = {
    "home": (
        "The finding in one sentence, three figures behind it, and whether the run can be trusted.",
        "that the finding holds on other models: see *Fair study* on the page Compare.",
    ),
    "card": (
        "What is said of the text at hand: whether it is large enough, whether another one would give "
        "another model, and whether it is distinct from the others.",
        "anything of the part of a text that was not drawn.",
    ),
    "calibration": (
        "How alike the texts are, and whether the sample was large enough: the curves should have flattened. "
        "Your own text can be held beside them.",
        "anything of texts that the run did not draw.",
    ),
    "drift": (
        "Look at the shaded part between the coloured curve and the grey ones: it is what noise does not "
        "explain.",
        "that a neuron which moves is unimportant.",
    ),
    "agreement": (
        "Higher lines are more stable. Compare the coloured ones with the grey controls, not with 1.",
        "that agreeing modules prune better.",
    ),
    "inspector": (
        "The rank on A, B and C beside the whiskers of re-sampling, and the tokens that move the unit most.",
        "what a neuron does: an activation before `down_proj` is no effect on the output.",
    ),
    "map": (
        "Each point is a neuron. Colours that lie together; a lasso lists what is inside of it.",
        "anything by wide distances, or by the axes of UMAP.",
    ),
    "lens": (
        "Orange tokens are predicted worse than by the dense model. Look where the continuations part.",
        "how a model does on other texts: one passage is an example.",
    ),
    "decisions": (
        "From left to right modules drift more. Read each pair of bars against what both methods keep in "
        "all.",
        "which decision was right.",
    ),
    "atlas": (
        "Rows, and ends of rows, of one colour, and the share in the title of the right card.",
        "that the text decided wrongly, or that another sample of one text would decide nothing otherwise.",
    ),
    "rasa": (
        "Each mark is a module. Those in the shaded corner are adapted; move the two lines to see what "
        "changes, and what it costs.",
        "the result of learning anew: that is a run, which the page starts.",
    ),
    "byhand": (
        "The change of perplexity with its error, beside the method itself.",
        "that the units which came back are the best ones: they are the nearest to the cut.",
    ),
    "retention": (
        "Where a curve leaves that of the dense model. Points without a line are what the run has measured; "
        "*Live evaluation* measures the others.",
        "what learning anew at another retention would give: GPrune’s thresholds are shifted together.",
    ),
    "compare": (
        "Lower is better. The change in brackets is paired; within two of its errors nothing is decided.",
        "more than the texts and windows that were measured.",
    ),
    "decide": (
        "What each pruned model loses against its parameters, or its measured time a token, over all runs of "
        "the dense model; large marks are those that no other model beats on both. Below: what equal widths "
        "cost, where they were measured.",
        "that neighbouring marks differ: whiskers that overlap may change places.",
    ),
    "questions": (
        "Right → wrong beside wrong → right, and p. Open a question and see which option it went to.",
        "whether an answer is a good one: only which option is likelier.",
    ),
    "speed": (
        "Ratios against the dense model, measured beside it on the same machine, with their spread.",
        "the speed on other hardware.",
    ),
    "launch": (
        "Start a run of your own model and texts, follow it, stop it and go on with it; find every run of "
        "the cache. Memory and time stand in a line before the start.",
        "what a run will find.",
    ),
    "export": (
        "Ways to take a model along, and the whole run as one file.",
        "that a folder runs faster: the tab Speed measures that.",
    ),
    "report": (
        "Choose figures, make one file of them that people can open anywhere, and take it along.",
        "anything new: it holds what the pages say, as they are set at that moment.",
    ),
}
"""of each place: what to look at, and what it does not say"""

KEYS = (
    ("Alt+H", "opens and closes this help"),
    ("Escape", "closes this help, gives the window back where a card fills it, and ends presenting"),
    ("Tab, Shift+Tab", "goes through buttons, fields, tabs and lines, and leaves a table"),
    ("Enter, Space", "presses what has the focus"),
    (
        "Arrow keys",
        "move a slider, or the line of a chart, by one step; go from tab to tab and through a table",
    ),
    (
        "Page Up, Page Down",
        "move the line of a chart by ten steps; on slides, go to the one before and after",
    ),
    ("Home, End", "move the line of a chart to its end; on slides, go to the first and last"),
    ("Space, ← →, ↑ ↓", "on slides, go on and back; Escape leaves them"),
    ("P, N", "go to the previous or next neuron or module, on the tab Inspector"),
    ("Alt+0 … Alt+4", "set the lines by a preset, on the tab RASA thresholds; Alt+0 is the run’s own"),
)
"""every key of the app, and what it does"""
