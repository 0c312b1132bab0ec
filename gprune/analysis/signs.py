"""Answers: how does a sentence write a change?"""


def signed(change: float, form: str) -> str:
    """A change with its sign, and a minus where a keyboard has a hyphen.

    Args:
        change: the number.
        form: of format strings, without the sign, as ".1%".
    """
    return format(change, f"+{form}").replace("-", "\N{MINUS SIGN}")
