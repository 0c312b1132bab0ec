"""Takes what lasts as long as the server out of the search for garbage.

Streamlit searches all of memory for garbage after every script, also those of fragments. Nearly all that it
looks at are modules, a hundred thousand objects and more, which are never garbage.
"""

import gc
import sys
import threading

MODULES = 20
"""so many more modules are worth a new count"""
_ONE_AT_A_TIME = threading.Lock()
_counted: list[int] = [0]
"""modules that were loaded when memory was last counted as lasting"""


def settle() -> bool:
    """Counts what is in memory as lasting, if much was loaded since the last time; says whether it did.

    What another session has in use at that moment goes as always when nothing refers to it any more; only a
    circle of such objects stays, once for each page at most.
    """
    with _ONE_AT_A_TIME:
        if len(sys.modules) < _counted[0] + MODULES:
            return False
        _counted[0] = len(sys.modules)
        gc.collect()
        gc.freeze()
        return True
