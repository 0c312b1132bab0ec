"""Messages of errors of libraries."""

from gprune.system import safe_parsing

_MESSAGE_LENGTH = 160


def one_line(error: BaseException) -> str:
    """Return the message of a library's error as one line of bounded length; ours where it gives unsafe advice."""
    words = " ".join(str(error).split()) or type(error).__name__
    replacement = safe_parsing.harmless(words)
    return safe_parsing.sentence(words, _MESSAGE_LENGTH) if replacement == words else replacement
