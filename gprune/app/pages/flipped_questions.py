"""Tab *Changed answers* of Compare: accuracy on tasks, and the questions that a pruned model answers differently."""

import math
from dataclasses import astuple
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from gprune.analysis import accuracy, changed_answers
from gprune.analysis.changed_answers import ACC, ACC_NORM, EITHER, GAINED, LOST, UNITS
from gprune.analysis.formatting import format_count
from gprune.analysis.paired_test import half_interval
from gprune.app.figures import flipped_questions as figures
from gprune.app.figures.flipped_questions import DENSE, TaskAnswers
from gprune.app.ui import address, frame, run_status, tables, work
from gprune.app.ui.card import Card, card, card_of
from gprune.app.ui.chart_style import label
from gprune.app.ui.run_status import task_label
from gprune.app.ui.text import escape, escape_error
from gprune.evaluation.protocol import of_accuracy
from gprune.pipeline import stages
from gprune.pipeline.runs.opened import Run
from gprune.pipeline.stages import evaluation as measure
from gprune.records import Accuracy, Array, GeneratedAnswers, Questions
from gprune.records.answers import MOST_ANSWERS, MOST_OPTIONS, MOST_QUESTIONS

Accuracies = dict[str, dict[str, Accuracy]]
"""by method and task"""
QUESTION = "fq_question"
"""address key of the number of the open question"""
MOST_ROWS = 200
NORMALISED = "ⁿ"
"""mark of length-normalised accuracies"""
_MOST_CHARACTERS = 90
"""maximum number of characters of a question in the list"""
_VISIBLE_ROWS = 8
"""rows of the list that are visible without scrolling"""
_KINDS = {EITHER: "All that change", LOST: "Right → wrong", GAINED: "Wrong → right"}
_RULES = {ACC: "Raw (acc)", ACC_NORM: "Length-normalised (acc_norm)"}
_RULE_HELP = (
    "max: the higher of raw and length-normalised accuracy of each task, as in the paper's tables. fixed: the "
    "normalised accuracy if the task has one (appendix, robustness to the evaluation protocol). Both come from one "
    "measurement; max is more favourable by construction."
)


@frame.declare_page("Changed answers", "What can the pruned model still answer, and which answers change?")
def show(run: Run) -> None:
    """Draw the page."""
    if any(run.has(stages.accuracy, *pair) for pair in product(run.study.methods, figures.measured_tasks(run))):
        with card("fq_accuracy", "Accuracy on tasks", run) as content:
            _show_accuracies(content, run, load_accuracies(run))
    answered = [task for task in figures.answered_tasks(run) if task.pruned]
    if not answered:
        with card("fq_nothing", "Changed answers", run):
            _explain_missing(run)
        return
    task, method, rule = _choose_comparison(answered)
    with card("fq_counts", "Changed answers, by task and method", run) as content:
        _show_counts(content, answered, task, method, rule)
    if frame.is_rest_deferred():
        return
    for show_card, declare in ((_show_generated, measure.generated_answers), (_show_open, measure.open_answers)):
        if run.has(declare, method, task.task):
            with card(f"fq_{declare.__name__}", "Generated answers", run) as content:
                records = task.generated(declare)
                if {DENSE, method} <= records.keys():
                    show_card(content, task, method, records)
                else:
                    st.caption("No question of this task has such an answer of both models.")
    number: int | None = None
    with card("fq_list", "The questions whose answers change", run) as content:
        number = _show_list(content, task, method, rule)
    if number is not None:
        with card_of(figures.answers, run) as content:
            _show_question(content, task, method, number, rule)


def load_accuracies(run: Run) -> Accuracies:
    """Return the accuracies that a run has, by method and task."""
    tasks = figures.measured_tasks(run)
    return {
        method: {
            task: run.load(stages.accuracy, method, task) for task in tasks if run.has(stages.accuracy, method, task)
        }
        for method in run.study.methods
    }


def _show_accuracies(content: Card, run: Run, accuracies: Accuracies) -> None:
    rules = accuracy.RULES
    rule = address.radio("Accuracy", rules, "fq_accuracy_rule", rules[0], horizontal=True, help=_RULE_HELP)
    content.set_title(_accuracy_finding(accuracies, rule))
    if run.study.evaluation.limit:
        limit = f"limited to {run.study.evaluation.limit} documents per task"
        st.badge(limit, color="orange", help="Not comparable with accuracies of whole tasks, nor with the paper's.")
    tables.show(accuracy_table(accuracies, rule), alt="accuracy of every task and method")
    st.caption(
        f"Accuracy in % ± the 95% interval over documents, higher is better; {NORMALISED} marks length-normalised "
        "accuracies. Chance is the accuracy of guessing."
    )
    precision = run.graph.inputs.precision
    tables.draw_stamps(
        of_accuracy(figure, run.results.details(stages.accuracy(run.graph, method, task)), rule, precision)
        for method, tasks in accuracies.items()
        for task, figure in tasks.items()
    )
    content.tools(
        lambda: accuracy_details(accuracies, rule),
        how="One row per task, one column per method. All methods answer the same documents, so use the changed "
        "answers below to decide whether two methods differ, not the intervals. A task with another lm-eval "
        "metric counts in the mean only if the metric is a share.",
    )
    work.warn_left_out_tasks(run)


def _accuracy_finding(accuracies: Accuracies, rule: str) -> str:
    means = {method: accuracy.mean_accuracy(tasks.values(), rule) for method, tasks in accuracies.items() if tasks}
    means = {method: mean for method, mean in means.items() if mean.tasks}
    if not means:
        return "Accuracy on tasks"
    parts = [f"{escape(label(method))} {100 * mean.value:.1f}%" for method, mean in means.items()]
    first = next(iter(means.values()))
    subject = f"Mean of {first.tasks} tasks" if first.tasks > 1 else "Accuracy"
    chance = "" if math.isnan(first.chance) else f"; chance {100 * first.chance:.1f}%"
    return f"{subject}: {', '.join(parts[:4])}{chance}"


def accuracy_table(accuracies: Accuracies, rule: str) -> pd.DataFrame:
    """Return a table of tasks by methods as text cells; the last rows are means, by ability and of several tasks."""
    methods = [method for method in accuracies if accuracies[method]]
    rows = []
    for task in dict.fromkeys(task for method in methods for task in accuracies[method]):
        first = next(accuracies[method][task] for method in methods if task in accuracies[method])
        direction = "" if first.higher_is_better else ", lower is better"
        metric = "" if first.metric == "acc" else f" ({first.metric}{direction})"
        row = {"task": task_label(task) + metric, "documents": f"{first.samples:,}", "chance": _percent(first.chance)}
        rows.append(row | {label(method): _accuracy_cell(accuracies[method].get(task), rule) for method in methods})
    # a mean is defined only over metrics that are shares
    shares = [figure for method in methods for figure in accuracies[method].values() if figure.is_share]
    for ability in sorted({figure.ability for figure in shares} - {""}):
        tested = {figure.task for figure in shares if figure.ability == ability}
        chosen = {m: {task: accuracies[m][task] for task in tested & accuracies[m].keys()} for m in methods}
        rows.append(_build_mean_row(chosen, len(tested), rule) | {"task": f"{ability} (tasks: {len(tested)})"})
    averaged = len({figure.task for figure in shares})
    if averaged > 1:
        rows.append(_build_mean_row({method: accuracies[method] for method in methods}, averaged, rule))
    return pd.DataFrame(rows)


def _build_mean_row(accuracies: Accuracies, tasks: int, rule: str) -> dict[str, str]:
    """Return the row of means over `tasks` tasks; a method that lacks a task has no mean."""
    row = {"task": f"mean of {tasks} tasks", "documents": "", "chance": ""}
    for method, by_task in accuracies.items():
        mean = accuracy.mean_accuracy(by_task.values(), rule)
        is_complete = mean.tasks == tasks
        row["chance"] = row["chance"] or (_percent(mean.chance) if is_complete else "")
        row[label(method)] = _with_margin(mean.value, mean.error) if is_complete else "–"
    return row


def _accuracy_cell(measured: Accuracy | None, rule: str) -> str:
    if measured is None:
        return "–"
    value, error = accuracy.reported_accuracy(measured, rule), accuracy.reported_error(measured, rule)
    if not measured.is_share:
        return f"{value:.4g}"
    return _with_margin(value, error) + (NORMALISED if accuracy.metric_of(measured, rule) == "acc_norm" else "")


def _percent(share: float) -> str:
    """Return a share in percent without the sign, as the columns of the table show it; a dash if unknown."""
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def _with_margin(value: float, error: float) -> str:
    if math.isnan(value):
        return "–"
    # there are many documents, so the quantile of the normal distribution is used
    margin = half_interval(error, math.inf)
    return f"{100 * value:.1f}" + ("" if math.isnan(margin) else f" ± {100 * margin:.1f}")


def accuracy_details(accuracies: Accuracies, rule: str) -> pd.DataFrame:
    """Return a table with one row per task and method, and raw and normalised accuracy in [0, 1]."""
    rows = [
        {
            "task": task_label(task),
            "method": label(method),
            "acc": figure.acc,
            "acc s.e.": figure.acc_error,
            "acc_norm": figure.acc_norm,
            "acc_norm s.e.": figure.acc_norm_error,
            "counts": accuracy.metric_of(figure, rule),
            "chance": figure.chance,
            "documents": figure.samples,
            "version": figure.version,
        }
        for method, tasks in accuracies.items()
        for task, figure in tasks.items()
    ]
    return pd.DataFrame(rows).sort_values("task", kind="stable")


def _choose_comparison(answered: list[TaskAnswers]) -> tuple[TaskAnswers, str, str]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        tasks = {str(index): task.name for index, task in enumerate(answered)}
        task = answered[int(address.selectbox("Task", tasks, "fq_task", "0", width=260))]
        methods = {name: label(name) for name in task.pruned}
        method = address.selectbox("Method", methods, "fq_method", figures.default_method(task), width=260)
        rules = {name: _RULES[name] for name in task.rules}
        rule = address.segmented_control("Figure", rules, "fq_rule", ACC)
    return task, method, rule


def _explain_missing(run: Run) -> None:
    """Show why no answers can be compared. Raises MissingResultError if they are not computed yet."""
    if figures.answered_tasks(run):
        st.info("Needs a run that includes the dense model.", icon=":material/hourglass_empty:")
    elif figures.measured_tasks(run):
        raise figures.no_answers_error(run)
    else:
        work.warn_left_out_tasks(run)
        work.offer_tasks(run, "fq_tasks")


def _show_counts(content: Card, answered: list[TaskAnswers], task: TaskAnswers, method: str, rule: str) -> None:
    counts = changed_answers.counts(task.choices(DENSE, rule), task.choices(method, rule))
    finding = changed_answers.answers_title(counts, label(method), "the dense model")
    table = counts_table(answered, rule)
    documents, stored = task.answers(method).documents, len(task.answers(method).counts)
    part = f", of its first {stored:,} questions" if stored < documents else ""
    content.set_title(f"{escape(finding)} ({escape(task.name)}{part})")
    p = st.column_config.NumberColumn(format="%.3f", help="exact McNemar test on the answers that change")
    wide = st.column_config.Column(width=190)
    tables.show(table, column_config={"p": p, "method": wide}, alt="changed answers of every task and method")
    for row in table[table["questions"] < table["asked"]].drop_duplicates("task").to_dict("records"):
        st.caption(
            f"{escape(row['task'])}: {row['questions']:,} of {row['asked']:,} questions shown. A run keeps the first "
            f"{MOST_QUESTIONS:,} questions or {MOST_OPTIONS:,} options of a task; the accuracy covers all."
        )
    content.tools(
        lambda: table,
        switch=False,
        caption="One row per task and method, against the dense model on the same questions. p below 0.05 is "
        "unlikely by chance.",
        how="Right → wrong: the dense model chooses the right option and the method does not; wrong → right is the "
        "reverse. p is the probability of changes at least as uneven if both directions were equally likely "
        "(McNemar’s exact test, two-sided). Each row is a separate test: about one row in twenty falls below "
        "0.05 by chance. A task without a normalised figure shows the raw one.",
    )


def counts_table(answered: list[TaskAnswers], rule: str) -> pd.DataFrame:
    """Return a table of the counts of changed answers, one row per task and method."""
    rows = []
    for task in answered:
        for method in task.pruned:
            counts = changed_answers.counts(task.choices(DENSE, rule), task.choices(method, rule))
            rows.append(
                {
                    "task": task.name,
                    "method": label(method),
                    "figure": rule if rule in task.rules else ACC,
                    "right → wrong": counts.lost,
                    "wrong → right": counts.gained,
                    "both right": counts.both,
                    "both wrong": counts.neither,
                    "questions": counts.questions,
                    "asked": task.answers(method).documents,
                    "p": counts.p_value,
                }
            )
    return pd.DataFrame(rows)


def _show_generated(content: Card, task: TaskAnswers, method: str, records: dict[str, GeneratedAnswers]) -> None:
    table = generation_table(task, records)
    length, cut_off, loops = table.set_index("method").loc[label(method)].iloc[2:]
    finding = f"answers {length:.1f}× as long as dense, {cut_off:.0f}% cut off, {loops:.0f}% in a loop"
    content.set_title(f"{escape(label(method))}: {finding}")
    _show_texts(task, method, records, records[method].numbers[:MOST_ANSWERS], "fq_answer")
    content.table(
        table,
        alt="length, cut-off and repetition of the generated answers of every method",
        caption="Score ± 95% interval and shares in %; mean length in tokens.",
        how="An answer is cut off if the limit of tokens ends it. It loops if its last quarter, or more, repeats a "
        "sequence of tokens at least three times; answers of fewer than 24 tokens do not count.",
    )


def generation_table(task: TaskAnswers, records: dict[str, GeneratedAnswers]) -> pd.DataFrame:
    """Return a table of score, mean length in tokens, and shares of cut-off and looping answers, a row per method."""
    rows = []
    for name, record in records.items():
        score = _accuracy_cell(task.run.find(stages.accuracy, name, task.task), accuracy.RULES[0])
        tokens, dense_tokens = record.tokens.mean(), max(records[DENSE].tokens.mean(), 1e-9)
        shares = 100 * record.is_cut.mean(), 100 * record.is_loop.mean()
        rows.append((label(name), score, tokens, tokens / dense_tokens, *shares))
    return pd.DataFrame(rows, columns=["method", "score", "tokens", "length ÷ dense", "cut off", "loops"]).round(2)


def _show_texts(task: TaskAnswers, method: str, records: dict[str, Any], numbers: Array, key: str) -> None:
    """Show one of the questions `numbers` with the generated texts of the dense model and a method."""
    names = {str(number + 1): f"Question {number + 1}" for number in numbers}
    number = int(address.selectbox("Question", names, key, next(iter(names)), width=260)) - 1
    if task.questions is not None and number < len(task.questions.counts):
        question, options = task.questions.question_at(number)
        expected = options[int(task.answers(DENSE).right[number])].strip()
        st.code(f"{question}\n\nExpected answer: {expected}", language=None, wrap_lines=True)
    for column, name in zip(st.columns(2), (DENSE, method), strict=True):
        record = records[name]
        index = record.numbers.tolist().index(number)
        notes = ["cut off"] * bool(record.is_cut[index]) + ["ends in a loop"] * bool(record.is_loop[index])
        column.caption(", ".join([label(name), format_count(int(record.tokens[index]), "token"), *notes]))
        column.code(record.answer_to(number).strip() or "(empty answer)", language=None, wrap_lines=True)


def _show_open(content: Card, task: TaskAnswers, method: str, records: dict[str, GeneratedAnswers]) -> None:
    hits = {name: (task.choices(name, ACC).hit[item.numbers], item.is_right) for name, item in records.items()}
    content.set_title(escape(changed_answers.describe_overrating(hits[method], hits[DENSE], label(method))))
    counts = {label(name): changed_answers.count_hits(*pair) for name, pair in hits.items()}
    rows = [(name, *astuple(row), changed_answers.probability(row.p_value)) for name, row in counts.items()]
    # the first examples are answers that only the options make right
    differs = np.argsort((~hits[method][0] | hits[method][1])[:MOST_ANSWERS], kind="stable")
    _show_texts(task, method, records, records[method].numbers[differs], "fq_open_answer")
    content.table(
        pd.DataFrame(rows, columns=["method", "both right", "only with options", "only openly", "both wrong", "p"]),
        alt="right and wrong answers with and without options, of every method",
        caption="Questions right with options (multiple choice) and without (asked openly). p: McNemar’s exact test.",
        how="An open answer is right if it contains the right option and no wrong one. Questions whose prompt lists "
        "the options are left out. The title compares the changes against dense by question, with a 95% interval.",
    )


def _show_list(content: Card, task: TaskAnswers, method: str, rule: str) -> int | None:
    """Show the questions that change and return the number of the open one, or None if none changes."""
    kind = address.segmented_control("Which", _KINDS, "fq_kind", EITHER)
    base, other = (task.choices(name, rule) for name in (DENSE, method))
    numbers = changed_answers.flips(base, other, kind)
    if not len(numbers):
        st.info(f"{label(method)} has no such question on {escape(task.name)}.", icon=":material/check:")
        return None
    visible = numbers[:MOST_ROWS]
    content.set_title(f"{format_count(len(numbers), 'question')}, largest shift first")
    table = question_table(task, method, rule, visible)
    text, number, unit = st.column_config.TextColumn, st.column_config.NumberColumn, UNITS[rule]
    tables.show(
        table,
        key="fq_rows",
        on_row=lambda row: address.set_value(QUESTION, int(visible[row]) + 1),
        height=tables.height(min(len(table), _VISIBLE_ROWS)),
        alt="questions whose answers change",
        column_config={
            "shift": number(
                format="%+.3f", help=f"change of the right option's lead over the best wrong one, {unit}", width=80
            ),
            "question": text(width="large"),
            "number": number(width=72),
        },
    )
    part = f" {MOST_ROWS} of {len(numbers):,} shown; the others shift less." if len(numbers) > MOST_ROWS else ""
    content.tools(
        lambda: question_table(task, method, rule, numbers),
        switch=False,
        caption=f"Shift: change of the right option's lead over the best wrong one, {unit}. "
        f"Select a row to open it.{part}",
        how="An answer changes if exactly one of the two models is right. Below zero, the lead of the right option "
        "shrinks; an answer that changes with a small shift was a near tie.",
    )
    return address.read_whole_number(QUESTION, int(visible[0]) + 1, 1, len(base.hit)) - 1


def question_table(task: TaskAnswers, method: str, rule: str, numbers: Array) -> pd.DataFrame:
    """Return a table with one row per question of `numbers`, which count from 0; the table counts from 1."""
    base, other = (task.choices(name, rule) for name in (DENSE, method))
    right, questions = task.answers(DENSE).right, task.questions
    columns = {"right": right, "dense chose": base.option, f"{label(method)} chose": other.option}
    return pd.DataFrame(
        {
            "number": numbers + 1,
            "question": [_shorten(questions, int(number)) for number in numbers],
            **{name: [changed_answers.letter(int(i)) for i in options[numbers]] for name, options in columns.items()},
            "shift": changed_answers.margin_shift(base, other)[numbers],
        }
    )


def _shorten(questions: Questions | None, number: int) -> str:
    """Return the end of a question's text, or its first option if it has no text."""
    if questions is None or number >= len(questions.counts):
        return "–"
    question, options = questions.question_at(number)
    text = " ".join((question or options[0]).split())
    return text if len(text) <= _MOST_CHARACTERS else "…" + text[1 - _MOST_CHARACTERS :]


def _show_question(content: Card, task: TaskAnswers, method: str, number: int, rule: str) -> None:
    panel = figures.answers(task.run, task=task.task, question=number, rule=rule, method=method)
    content.set_title(panel.title)
    questions = task.questions
    if questions is None or number >= len(questions.counts):
        title = stages.questions(task.run.graph, task.task).title
        reason = run_status.pack_reason(task.run, title) or f"Needs “{title}”, which this run does not have."
        st.info(escape_error(reason), icon=":material/inventory_2:")
    elif words := questions.question_at(number)[0].strip():
        # a code block shows the mark-up of a question as text
        st.code(words, language=None, wrap_lines=True)
    else:
        st.caption("This question has no text before its options; the more likely option is the answer.")
    options = figures.options_table(task, number, rule)
    widths: dict[str, Any] = {"option": 56, "right": 48, "text": "large", "chosen by": "medium"}
    tables.show(
        options,
        column_config={name: st.column_config.TextColumn(width=width) for name, width in widths.items()},
        **tables.lines(options, figures.MOST_OPTIONS),
        alt="the options of the question",
    )
    content.show(panel)
