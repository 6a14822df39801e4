"""Build a tactic model's prompts: the same tokens in training, in the search and in the reward.

There are two kinds of model:

    causal    system and user messages, rendered by its tokenizer's chat template, else under headings
    seq2seq   an encoder-decoder as ReProver trains it: retrieved premises, the nearest last, then the state

The answer is a tactic, whole, and the model's end mark. A long prompt is cut in the same way everywhere: premises first
(a premise without room is left out and the next one tried), then the goals after the first, then the oldest hypotheses.
Rows of fine-tuning and provers get their premises here and nowhere else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pipeline.endpoint.dialect import ChatMessage
from pipeline.models.errors import ModelError
from pipeline.models.text import (
    fitting_state,
    least,
    state_text,
    without_marks,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Kind = Literal["causal", "seq2seq"]
_log = logging.getLogger(__name__)
SYSTEM = (
    "You prove theorems in Lean 4. Given a proof state, answer with the next tactic for its first goal and with "
    "nothing else. Never use sorry or admit."
)
WHOLE_SYSTEM = (
    "You prove theorems in Lean 4. Given a declaration with a sorry, answer with the text that takes the sorry's place "
    "and with nothing else. Never use sorry, admit, or an axiom."
)
_PREMISES = "Premises that may help, the most likely one last:"
_STATE = "Proof state:"
_CONTEXT = "The file up to the declaration:"
_DECLARATION = "The declaration:"
_FAILED = "These answers were wrong. Lean's errors stand under each:"
_HEADINGS = (
    "{% for message in messages %}### {{ message['role'] | capitalize }}\n{{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}### Assistant\n{% endif %}"
)
"""The template of a tokenizer without one."""
_PREMISE_END = "\n\n"
PREMISE_CHARACTERS = 4_000
"""The most characters of a prompt's premises together: an endpoint charges for each, and some definitions are long."""


def thinking(wanted: bool) -> dict[str, Any]:
    """Return a template's arguments that turn a model's thinking on or off.

    The names are Qwen's and its kin's, DeepSeek's, gpt-oss's; a template ignores the others' names.
    """
    return {
        "enable_thinking": wanted,
        "thinking": wanted,
        "reasoning_effort": "high" if wanted else "low",
    }


def messages(state: str, premises: Sequence[str] = ()) -> list[ChatMessage]:
    """Return the system and the user message for a state.

    Args:
        state: as Lean or a dataset has it.
        premises: code of retrieved premises, the nearest first.
    """
    content = state_text(state)
    if listed := _listed(premises):
        content = f"{listed}{_PREMISE_END}{_STATE}\n{content}"
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]


@dataclass(frozen=True, slots=True)
class WholeProof:
    """A request for a whole proof.

    Attributes:
        declaration: its text, with a sorry in the proof's place.
        context: the file's text before it.
        goal: the sorry's, as Lean prints it.
        premises: code of retrieved premises, the nearest first.
        failed: earlier answers, each with Lean's errors.
    """

    declaration: str
    context: str = ""
    goal: str = ""
    premises: Sequence[str] = ()
    failed: Sequence[tuple[str, Sequence[str]]] = ()

    def messages(self) -> list[ChatMessage]:
        """Return the system and the user message."""
        parts = [f"{_CONTEXT}\n{_lean(self.context)}"] if self.context.strip() else []
        parts += filter(None, [_listed(self.premises)])
        parts.append(f"{_DECLARATION}\n{_lean(self.declaration)}")
        if self.goal.strip():
            parts.append(f"{_STATE}\n{state_text(self.goal)}")
        if self.failed:
            wrong = [f"{_lean(text)}\n" + "\n".join(errors) for text, errors in self.failed]
            parts.append("\n\n".join([_FAILED, *wrong]))
        return [{"role": "system", "content": WHOLE_SYSTEM}, {"role": "user", "content": "\n\n".join(parts)}]

    def without(self, number: int) -> WholeProof:
        """Return the request without so many parts.

        First the context's oldest lines go, then the oldest failed answers, then the premises, then the goal, stated by
        the declaration too.
        """
        lines = self.context.splitlines()
        answers = max(0, number - len(lines))
        others = answers - len(self.failed)  # premises and goal
        return replace(
            self,
            context="\n".join(lines[number:]),
            failed=self.failed[answers:],
            premises=self.premises if others < 1 else (),
            goal=self.goal if others < 2 else "",
        )


def _listed(premises: Sequence[str]) -> str:
    """Return the premises under their heading, the nearest last; "" for none."""
    kept = packed([without_marks(premise) for premise in premises], _has_room)
    return _PREMISE_END.join([_PREMISES, *reversed(kept)]) if kept else ""


def _has_room(premises: Sequence[str]) -> bool:
    return sum(map(len, premises)) <= PREMISE_CHARACTERS


def packed(premises: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Return premises that fit together, in their order: one without room is left out, and the next one tried."""
    if fits(premises):
        return tuple(premises)
    kept: tuple[str, ...] = ()
    for premise in premises:
        if fits((*kept, premise)):
            kept = (*kept, premise)
    return kept


def _lean(text: str) -> str:
    return f"```lean4\n{text.strip()}\n```"


class Prompts:
    """Builds the prompts of one model.

    Attributes:
        kind: see the module.
        max_length: the most tokens of a prompt; the answer's come on top.
        end: the id of the token at an answer's end.
        marks: matches the tokenizer's marks, which are no text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, kind: Kind, *, max_length: int) -> None:
        """Args:
        tokenizer: the model's; without a chat template it gets a plain one, which goes with a trained model.
        kind: see the module.
        max_length: the most tokens of a prompt.

        Raises:
            ModelError: the tokenizer has no end mark, its template takes no message, or `max_length` has no room
                for a prompt.
        """
        if tokenizer.eos_token_id is None:
            raise ModelError(
                f"the tokenizer of {tokenizer.name_or_path} has no eos_token, so the model could not say where a "
                "tactic ends. Set one in its tokenizer_config.json"
            )
        self.tokenizer = tokenizer
        self.kind = kind
        self.max_length = max_length
        self.end = int(tokenizer.eos_token_id)
        self._system_apart = True
        added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
        named = {mark for mark in (*added, *tokenizer.all_special_tokens) if len(mark) > 1}
        self.marks = re.compile("|".join(map(re.escape, sorted(named, key=len, reverse=True))) or r"(?!)")
        if kind == "causal":
            if not tokenizer.chat_template:
                _log.warning(
                    "%s has no chat template: it gets plain text, under headings. If it was trained with one, put its "
                    "chat_template.jinja beside its tokenizer",
                    tokenizer.name_or_path,
                )
                begins = tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id
                tokenizer.chat_template = ("{{ bos_token }}" if begins else "") + _HEADINGS
            self._try_template()
        least = len(self._ids("⊢ p", ()))
        if least > max_length:
            raise ModelError(
                f"{max_length} tokens have no room for a prompt: the shortest one of {tokenizer.name_or_path} has "
                f"{least}. Set max_seq_len higher"
            )

    def conversation(self, state: str, premises: Sequence[str] = ()) -> list[ChatMessage]:
        """Return the messages for a state as the model's template takes them, cut to fit. For kind "causal"."""
        return self._turns(messages(*self.fitted(state, premises)))

    def ids(self, state: str, premises: Sequence[str] = ()) -> list[int]:
        """Return the prompt's tokens: at most `max_length`, for any state."""
        result = self._ids(state, premises)
        # Most prompts fit, and their state is tokenized once.
        return result if len(result) <= self.max_length else self._ids(*self.fitted(state, premises))

    def whole_proof_ids(
        self, proof: WholeProof, *, max_length: int, enable_thinking: bool = False
    ) -> list[int]:
        """Return the tokens of a request for a whole proof, without the parts that do not fit (`WholeProof.without`).

        With `enable_thinking` a model that can think does so before it answers.

        Raises:
            ModelError: the model is an encoder-decoder, made for tactics; or the declaration alone is longer than
                `max_length`.
        """
        if self.kind == "seq2seq":
            raise ModelError(
                f"{self.tokenizer.name_or_path} is an encoder-decoder, trained to answer with one tactic. Ask a causal "
                "model for whole proofs"
            )

        def ids(asked: WholeProof) -> list[int]:
            return self._tokens(self._rendered(self._turns(asked.messages()), think=enable_thinking))

        parts = len(proof.context.splitlines()) + len(proof.failed) + 2
        left_out = least(0, parts, lambda number: len(ids(proof.without(number))) <= max_length)
        result = ids(proof.without(left_out))
        if len(result) > max_length:
            raise ModelError(
                f"the declaration alone makes a prompt of {len(result)} tokens, and there is room for {max_length}: "
                "take a model with more positions, or a longer max_seq_len"
            )
        return result

    def answer_ids(self, tactic: str) -> list[int]:
        """Return the tokens of an answer with the end mark, in training and in generation."""
        ids: list[int] = self.tokenizer(self._harmless(tactic), add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        return [*ids, self.end]

    def fitted(self, state: str, premises: Sequence[str] = ()) -> tuple[str, tuple[str, ...]]:
        """Return the state and the premises, cut to a prompt's length."""

        def fits(state: str, premises: Sequence[str] = ()) -> bool:
            return len(self._ids(state, premises)) <= self.max_length

        cut = fitting_state(state, fits)
        return cut, packed(premises, lambda some: fits(state, some)) if cut == state else ()

    def _turns(self, made: list[ChatMessage]) -> list[ChatMessage]:
        """Return messages as the model's template takes them."""
        for one in made:
            # The last change of the text: without a premise's marks the parts of one of the template's may meet.
            one["content"] = self._harmless(one["content"])
        if self._system_apart:
            return made
        return [{"role": "user", "content": "\n\n".join(one["content"] for one in made)}]

    def _text(self, state: str, premises: Sequence[str]) -> str:
        if self.kind == "seq2seq":
            return self._harmless(_PREMISE_END.join([*reversed(premises), state_text(state)]))
        return self._rendered(self._turns(messages(state, premises)))

    def _ids(self, state: str, premises: Sequence[str]) -> list[int]:
        return self._tokens(self._text(state, premises))

    def _tokens(self, text: str) -> list[int]:
        # A template writes the marks a tokenizer would add.
        encoded: Mapping[str, list[int]] = self.tokenizer(
            text, add_special_tokens=self.kind == "seq2seq", verbose=False
        )
        return list(encoded["input_ids"])

    def _harmless(self, text: str) -> str:
        """Return a text in which a repository's source cannot speak as the template: no mark of the tokenizer's."""
        # A lone surrogate cannot come out of a file, but may be in a JSON escape; no tokenizer takes one.
        text = text.encode("utf-8", "replace").decode("utf-8")
        return self.marks.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _rendered(self, made: list[ChatMessage], *, think: bool = False) -> str:
        turns: list[dict[str, str]] = [{"role": one["role"], "content": one["content"]} for one in made]
        rendered: Any = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, **thinking(think)
        )
        return str(rendered)

    def _try_template(self) -> None:
        # Comes with transformers: a search without a model has no tokenizer and no jinja2.
        from jinja2 import TemplateError

        for self._system_apart in (True, False):
            try:
                self._text("⊢ p", ())
            except TemplateError as error:
                reason = error
            else:
                return
        raise ModelError(
            f"the chat template of {self.tokenizer.name_or_path} takes no user message ({reason}). Mend it, or "
            "remove it: the model is then asked in plain text"
        )
