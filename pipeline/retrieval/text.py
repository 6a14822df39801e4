"""What the retriever reads: a query is a proof state, a document is a premise's code with its name marked.

Both are LeanDojo's (`format_state` and `Premise.serialize` of LeanDojo-v2's `lean_agent/common.py`), so that its
checkpoints see what they were trained on. `byte_ids` makes ids of them, the same in training, index and search. NumPy
is loaded where ids are made: texts are needed where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MARK_START = "<a>"
MARK_END = "</a>"

PAD_ID = 0
EOS_ID = 1
_BYTE_OFFSET = 3

Ids: TypeAlias = "npt.NDArray[np.int32]"

_GOAL_COUNT = re.compile(r"\d+ goals")


def query_text(state: str) -> str:
    """Return a tactic state as the retriever asks with it: without the leading "N goals"; marks are taken out.

    A state without a turnstile (a `conv` goal, an empty one) is a query like any other.
    """
    counted = _GOAL_COUNT.match(state)
    text = state if counted is None else state[counted.end() :].strip()
    while MARK_START in text or MARK_END in text:  # taking one out may put another together
        text = text.replace(MARK_START, "").replace(MARK_END, "")
    return text


def document_text(full_name: str, code: str) -> str:
    """Return a premise's code with the name that it declares marked, as `<a>Full.name</a>`.

    `_root_.Full.name` is marked wherever it stands, then the longest dotted ending of the name that follows white
    space (perhaps in French quotes), at each of its places. Where the name is not in the code, the code stays.
    """
    marked = f"{MARK_START}{full_name}{MARK_END}"
    code = code.replace(f"_root_.{full_name}", marked)
    fields = full_name.split(".")
    for start in range(len(fields)):
        replaced = _with_mark(code, ".".join(fields[start:]), marked)
        if replaced != code:
            return replaced
    return code


def _with_mark(code: str, name: str, marked: str) -> str:
    r"""Return `code` with `(?<=\s)«?name»?` replaced: an expression for each name costs twenty times this search."""
    parts: list[str] = []
    done = 0
    at = code.find(name) if name else -1
    while at >= 0:
        begin = at - 1 if at > 0 and code[at - 1] == "«" else at
        if begin > 0 and code[begin - 1].isspace():
            parts += code[done:begin], marked
            done = at + len(name)
            done += code.startswith("»", done)
            at = code.find(name, done)
        else:
            at = code.find(name, at + 1)
    return "".join((*parts, code[done:]))


def byte_ids(text: str, max_length: int) -> Ids:
    """Return ByT5's ids of a text: each UTF-8 byte plus 3, then the end mark 1; at most `max_length` of them.

    What is too long loses its end but not the end mark, as in transformers' tokenizer with `truncation=True`. Unlike
    there, a text like "</s>" or "<extra_id_0>" is its bytes: it came from Lean and means nothing to the model.

    Returns:
        int32, shape (length,).
    """
    import numpy as np

    # A lone surrogate cannot come out of a file, but may stand in a JSON escape.
    data = text.encode("utf-8", "surrogatepass")[: max_length - 1]
    ids = np.empty(len(data) + 1, dtype=np.int32)
    ids[:-1] = np.frombuffer(data, dtype=np.uint8)
    ids[:-1] += _BYTE_OFFSET
    ids[-1] = EOS_ID
    return ids


def padded(rows: Sequence[Ids]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return rows of ids as one array with the mask of what is no padding: int64, shape (len(rows), longest)."""
    import numpy as np

    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), PAD_ID, dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
        mask[index, : len(row)] = 1
    return ids, mask
