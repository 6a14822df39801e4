"""Check 1, the text: words refused in a proof, whatever Lean would make of them.

They run code, print, or leave the proof's place. Whether a text proves anything is Lean's to say.

The scanner's lexer separates comments and strings from code. Names count in every spelling: quoted by `«»`, with a
namespace before them, in look-alike letters, with invisible characters in between.
"""

from __future__ import annotations

import itertools
import re
import unicodedata

from pipeline.lean.source.lexer import ID_FIRST, ID_REST, KEYWORDS, lex, tokens_of_text


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SORRY_NAMES = _words("sorry admit sorryAx")
UNSEEN_NAMES = _words(
    """skipKernelTC addDeclWithoutChecking addDeclCore doCheck lean_environment_add add_decl_without_checking"""
)
"""With these a declaration enters an environment without the kernel."""

UNCHECKED_NAMES = UNSEEN_NAMES | _words(
    """native_decide bv_decide bv_check ofReduceBool ofReduceNat reduceBool reduceNat
    trustCompiler implemented_by extern csimp lcProof lcAny lcUnreachable unsafeCast native"""
)
"""These rest on compiled or unchecked code instead of the kernel's own work."""

UNPROVED_MODIFIERS = _words("unsafe partial")
"""With these a declaration needs no proof."""

MAKERS = _words(
    """sorryAx mkSorry mkLabeledSorry mkSyntheticSorry admitGoal exceptionToSorry axiomDecl addDeclCore
    addDeclWithoutChecking runParserCategory"""
)
"""Functions by which a program of Lean's makes a sorry or an axiom, or runs a command from a text nobody reads."""

FORBIDDEN_NAMES = (
    SORRY_NAMES
    | UNCHECKED_NAMES
    | _words(
        """run_tac run_tacq run_cmd run_elab run_meta by_elab by_elabq
    dbg_trace dbgTrace dbgTraceVal dbgTraceIfShared dbgSleep dbgStackTrace logInfo logWarning logError logAt println
    trace_state trace_message
    IO EIO BaseIO RealWorld UV FS Process timeit allocprof ptrAddrUnsafe eval_expr run_conv"""
    )
)
"""Refused as a name or as a part of a dotted name: a sorry, an axiom or unchecked code by another word; printing, since
a proof's output could pass for the compiler's; and acting on the world: Lean evaluates a tactic's configuration while
it elaborates, and `IO.FS.writeFile` applied to the unit there writes a file. In a file that opens `IO`, the names below
it lack the `IO`."""

_ROOTS_OF_CODE = frozenset({"Lean", "Lake", "System"})
"""Namespaces of Lean's own programs, such as those for reading and writing compiled modules."""

_LEMMAS_THERE = ("Lean.Grind.", "Lean.Omega.", "Lean.Order.", "System.Platform.")
"""Lemmas' places in them."""

_SUGGESTING = _words(
    """exact? apply? rw? rw?? have? simp? simp_all? dsimp? simpa? aesop? grind? decide? omega? try? observe? refine?
    linarith? positivity? ring? norm_num? rw!? apply?! simp?! simp_all?! dsimp?! finish? fun_prop? ext? simp_arith?
    unfold? conv? congrm? calc? norm_cast? measurability? continuity? tauto? split_ifs? nlinarith? bound? gcongr?
    apply_rules? termination_by? duper? auto?"""
)
_PRINTS = _SUGGESTING | _words("show_term polyrith library_search squeeze_simp rw_search")
"""These print their finds, or ask a server: refused anywhere."""

ADMITTING = _SUGGESTING | _words("hint plausible slim_check")
"""These may admit the goal, or only suggest a proof: in a proof's place they are none."""

_OPTIONS = _words(
    """maxHeartbeats maxRecDepth maxSynthPendingDepth synthInstance exponentiation linter pp tactic simprocs backward
    autoImplicit relaxedAutoImplicit smartUnfolding"""
)
"""Roots of the options that a proof may set. All others are refused: options skip the kernel (`debug`), hide a
warning, print, or change how Lean itself works, and each version of Lean and of a library has more of them."""

_ONLY_SHOW = (
    "trace",
    "diagnostics",
    "profiler",
    "Elab.async",
    "doc.verso",
    "grind.warning",
    "format",
    "guard_msgs",
)
"""Options, and roots of them, that print or quiet something and change no proof."""

_WITH_IN = _words("open set_option")
"""Allowed with an `in` that makes them part of the proof; without it they are commands."""

_LEAN_S_TO_SAY = _words("termination_by decreasing_by checkpoint save stop")
"""Words on the termination of a recursive proof, which Lean checks, and tactics whose names variables may have."""

FORBIDDEN_WORDS = (
    (KEYWORDS - _WITH_IN - _LEAN_S_TO_SAY)
    | UNPROVED_MODIFIERS
    | _words(
        """meta local scoped private protected public noncomputable include_str where add_aesop_rules
    erase_aesop_rules init_quot docs_to_verso whatsnew mk_iff_of_inductive_prop insert_to_additive_translation
    delta_instance set_library_suggestions open_locale import_private simproc_pattern"""
    )
)
"""Refused as a word of its own: each opens a command, declares something that outlives the proof, leaves the rest
of the proof out, or runs code while Lean elaborates."""

_STOPS = re.compile(r"(?:\A|[\n;|·]|=>|<;>|(?<!\w)by\s)\s*stop(?![\w.'!?])")
"""The tactic, which leaves out the rest; elsewhere it is a name."""

_COMMANDS = tuple(
    _words(
        """#check #conv #discr_tree_key #eval #exit #find #guard #help #html #import #instances #leansearch #lint
        #long_names #loogle #min_imports #moogle #norm_num #print #reduce #search #simp #synth #time #unfold? #version
        #where #whnf #widget"""
    )
)
"""Beginnings of the commands that evaluate or print. Other words with `#` may be a notation and a name (`#s`), or a
library's command, which Lean does not take for a part of the proof."""

_PLACES_OF_PROGRAMS = _words("UV FS Process")
"""Namespaces without a meaning by themselves: hypotheses may have these names, unless something is opened."""

_CONFIGURATIONS = frozenset({"config", "cfg"})
_WITH_OPTIONS = _words(
    """simp simp! simp_all simp_all! dsimp dsimp! simpa simpa! simp_arith rw rewrite rwa erw omega decide grind lia
    cutsat apply constructor norm_num norm_num1 ring_nf abel_nf field_simp push_cast norm_cast linarith nlinarith
    positivity aesop congr! convert split unfold injection"""
)
"""Tactics with options of the form `(name := …)` after them."""
_OPTIONS_WITH_TACTICS = frozenset({"disch", "discharger"})
_CONSTANTS = _words("true false True False none some default with in")
"""Besides field names, the words allowed in a tactic's configuration."""

_LETTER = re.compile(f"[{ID_REST}λΠΣ]")
_BRACKETS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "⟨": "⟩",
    "⟦": "⟧",
    "⦃": "⦄",
    "‹": "›",
    "«": "»",
    "#[": "]",
    "@[": "]",
}
_CLOSERS = frozenset(_BRACKETS.values())

# Where the lexer and Lean could disagree on code and text, refuse: a disagreement would hide words.
_NUMBER_IN_WORD = re.compile(
    rf"(?<![{ID_REST}])(?>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[{ID_FIRST}]|[0-9]\.[eE][0-9]+[{ID_FIRST}]"
)
_QUOTED_NAME = re.compile(r"«[^«»\n]*»")
# Lean ends a name at `»`: a word right behind it, or right before `«`, is another token, perhaps a keyword.
_GLUED_NAME = re.compile(rf"[{ID_REST}λΠΣ]«|»[{ID_REST}λΠΣ«]")
_NAME = re.compile(rf"[{ID_FIRST}][{ID_REST}]*")
_WHOLE_NAME = re.compile(rf"(?<![{ID_REST}]){_NAME.pattern}")
_CHARACTER = re.compile(r"'(?:[^'\\]|\\[^'\n]{1,10})'|[»\"]'|'[«\"]|«[^»]*'[^»]*»|'\\")
_STRING_OPENS_AFTER = frozenset(" \n([{⟨,=")
_STRING_CLOSES_BEFORE = frozenset(" \r\n)]}⟩,;.")
_STRING = re.compile(r'"(?:[^"\\{}\n\r]|\\["\\nt])*"')
# Unambiguous text, put aside before the rest is looked at.
_RADIX = re.compile(rf"(?<![{ID_REST}.])0(?:[xX][0-9a-fA-F]+|[bB][01]+|[oO][0-7]+)(?![{ID_REST}.'\"«])")
_PLAIN_CHARACTER = re.compile(r"(?<=[ (\[⟨,])'[A-Za-z0-9]'(?=[ )\]⟩,;\n]|\Z)")

_UNSEEN = frozenset("\u034f\u2800\u3164\uffa0")
"""Characters that show as nothing though they are no format characters; variation selectors are others."""

# `unsafeIO`, `unsafeBaseIO`, `unsafePerformIO`: Lean's own names for unchecked code.
_UNSAFE = re.compile(r"unsafe[A-Z]")

# Letters of other scripts that look like Latin ones; NFKC does not fold them.
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁցհӏոԛսνᴠωᴡᴢοιαρτκԝᴏꜱᴀᴅᴍᴛɪʏıΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕЅІЈКМНОРСТХ",
    "aeopcyxijsdghlnquvvwwzoiaptkwosadmtiyiABEZHIKMNOPTYXABESIJKMHOPCTX",
)
_LOOKALIKE = frozenset(map(chr, _LOOKALIKES))


def complaints(replacement: str, *, ends_line: bool = False) -> tuple[str, ...]:
    """Return the reasons why the text must not take a sorry's place; empty if there are none.

    Args:
        replacement: the text.
        ends_line: nothing of the source follows it on its last line.
    """
    halves = sorted({character for character in replacement if "\ud800" <= character <= "\udfff"})
    if halves:  # no file can hold it
        return tuple(f"U+{ord(half):04X}, which is half of a character" for half in halves)
    result: list[str] = []
    lexed = lex(replacement)
    code, bare = lexed.code, lexed.bare
    for character in sorted(set(replacement)):
        # In a comment it hides nothing unless it changes the look of others.
        if invisible(character) and (character in code or unicodedata.category(character) != "Mn"):
            result.append(f"the invisible character U+{ord(character):04X}")
        elif unicodedata.category(character) in ("Zs", "Zl", "Zp") and character != " ":
            result.append(f"the white space U+{ord(character):04X}, which is none to Lean")
    if any(unicodedata.category(b) in ("Mn", "Me") for a, b in itertools.pairwise(code) if a.isascii()):
        result.append("an accent that is put on a letter, which makes a name look like another")
    result += _ambiguous(replacement, code)
    if lexed.docs:
        result.append("a doc comment, which would document what follows or be a command")
    result += [
        f"the letter {character} (U+{ord(character):04X}), which no name in Lean has"
        for character in sorted(set(bare))
        if unicodedata.category(character) in ("Lu", "Ll", "Lo", "Nl") and not _LETTER.match(character)
    ]
    if "-/" in bare:
        result.append("the end of a comment that the replacement does not open")
    tokens, unclosed = tokens_of_text(replacement)
    if unclosed is not None:
        result.append(f"not closed inside the replacement: {unclosed}")
    if not ends_line and _ends_in_comment(replacement):
        result.append("a line comment at the end would hide the source after it")
    words = [token.text for token in tokens]
    result += _unbalanced(words)
    result += _commands(words)
    result += _computed(words)
    if _STOPS.search(bare):
        result.append("the word stop")
    opens = not _OPENING.isdisjoint(words)
    excused = _excused(words)
    for position, word in enumerate(words):
        if position in excused:
            continue
        following = words[position + 1] if position + 1 < len(words) else ""
        complaint = _word(word, following, opens=opens)
        if complaint is not None and complaint not in result:
            result.append(complaint)
    return tuple(result)


def invisible(character: str) -> bool:
    """Return whether a character shows as nothing, or changes the look of others; the end of a line does not."""
    unseen = character in _UNSEEN or "\ufe00" <= character <= "\ufe0f" or character >= "\U000e0100"
    return unseen or (unicodedata.category(character) in ("Cf", "Cc", "Co") and character not in "\n\r")


def skeleton(name: str) -> str:
    """Return the name as it looks: no quotes, no invisible characters, look-alikes folded to Latin letters."""
    if name.isascii():
        return name
    plain = unicodedata.normalize("NFKC", name).replace("«", "").replace("»", "")
    # Translating a text costs ten times as much as looking at its characters once each.
    others = {character for character in set(plain) if not character.isascii()}
    unseen = {ord(character): "" for character in others if unicodedata.category(character) == "Cf"}
    plain = plain.translate(unseen) if unseen else plain
    return plain if _LOOKALIKE.isdisjoint(others) else plain.translate(_LOOKALIKES)


def may_set(option: str) -> bool:
    """Return whether a proof may set the option."""
    return skeleton(option).split(".")[0] in _OPTIONS


def changes_nothing(option: str) -> bool:
    """Return whether a source may set the option without a change to its proofs."""
    name = skeleton(option).removeprefix("weak.")
    return may_set(name) or any(name == root or name.startswith(f"{root}.") for root in _ONLY_SHOW)


_OPENING = frozenset({"open", "export", "«open»"})


def _word(word: str, following: str, *, opens: bool) -> str | None:
    if word == "@[":
        return "an attribute: one on a local declaration outlives the proof"
    if word == "eval" and following == "%":
        return "eval%, which runs code while Lean elaborates"
    if word.startswith(_COMMANDS):
        return f"the command {word}"
    plain = skeleton(word)
    parts = plain.removeprefix("_root_.").split(".")
    shown = word if plain == word else f"{word} (a spelling of {plain})"
    bare = not opens and plain in _PLACES_OF_PROGRAMS
    if plain in FORBIDDEN_WORDS or (not bare and any(_forbidden(part) for part in parts)):
        return f"the word {shown}"
    if parts[0] in _ROOTS_OF_CODE and not plain.startswith(_LEMMAS_THERE):
        return f"{shown}, a name of Lean's own programs"
    if plain in _PRINTS:
        return f"{shown}, which looks for a proof and is none"
    if parts[0] == "debug" and len(parts) > 1:
        return f"the option {shown}"
    if plain == "trace" and following.startswith('"'):
        return "trace, which prints"
    if plain == "set_option" and not may_set(following):
        return f"the option {following}, which is none that a proof may set"
    return None


def _forbidden(part: str) -> bool:
    """Return whether a part of a name is refused: as it is, with a tactic's `?` or `!` behind it, or as unsafe code."""
    return part.rstrip("?!") in FORBIDDEN_NAMES or part in FORBIDDEN_NAMES or bool(_UNSAFE.match(part))


def _excused(words: list[str]) -> frozenset[int]:
    """Return the positions of words with another meaning there: in `aesop (add unsafe foo)`, `open scoped Foo in`."""
    result = {at for at in range(1, len(words)) if (words[at - 1], words[at]) == ("open", "scoped")}
    for at in range(len(words) - 2):
        if words[at : at + 2] == ["(", "add"] and words[at + 2] != ":=":
            inside, depth = range(at + 2, _closing(words, at)), 0
            for inner in inside:
                depth += (words[inner] in _BRACKETS) - (words[inner] in _CLOSERS)
                if words[inner] == "unsafe" and depth == 0 and words[inner - 1] in ("add", ","):
                    result.add(inner)
    return frozenset(result)


def _ambiguous(text: str, code: str) -> list[str]:
    """Return a complaint about each piece with two readings: as a string, character or number, or as something else.

    `code` is the text without its comments: a comment with nothing doubtful before it is one to Lean too.

    Lean cuts `0'"'` into a number and a character, and `⁻¹'"` may be a token of some library with a string after it:
    the lexer cannot know. So strings must stand between white space or brackets. In the same way `{x //-1 < x}` begins
    a comment to the lexer and none to Lean, and a quoted name may hold a line end.
    """
    result: list[str] = []
    if re.search(r"\r(?!\n)", text):
        result.append("a carriage return that ends no line")
    if set("«»") & set(_QUOTED_NAME.sub("", code)):
        result.append("a quoted name that does not end on its line, or a stray « or »")
    if _GLUED_NAME.search(code):
        result.append("a quoted name with a word right beside it, which Lean reads as two")
    if any(
        code[at] != text[at] and code[at - 1] == text[at - 1] and not text[at - 1].isspace()
        for at in range(1, len(text))
    ):
        result.append("a comment right behind a symbol, which could be a part of it")
    plain = _PLAIN_CHARACTER.sub("0", _RADIX.sub("0", code))
    if _NUMBER_IN_WORD.search(plain):
        result.append("a number that runs into a word")
    if _CHARACTER.search(_WHOLE_NAME.sub("x", plain)):
        result.append("a character literal, or a tick beside a quotation mark")
    at = code.find('"')
    while at >= 0:
        string = _STRING.match(code, at)
        before, after = (
            code[at - 1 : at] if at else "",
            code[string.end() : string.end() + 1] if string else "",
        )
        if (
            string is None
            or ("\\" in string.group() and _could_hide(string.group()))
            or (before and before not in _STRING_OPENS_AFTER)
            or (after and after not in _STRING_CLOSES_BEFORE)
        ):
            result.append("a quotation mark that is not plainly the edge of a string on one line")
            break
        at = code.find('"', string.end())
    return result


def _could_hide(string: str) -> bool:
    """Return whether a string with escapes, in another reading, could be more than a text."""
    words = _NAME.findall(string)
    return "--" in string or "/-" in string or any(_word(word, "", opens=True) for word in words)


def _commands(words: list[str]) -> list[str]:
    """Return the complaint about an `open` or `set_option` without its `in`, which is a command of its own."""
    waiting = ""
    for position, word in enumerate(words):
        plain = skeleton(word)
        following = words[position + 1] if position + 1 < len(words) else ""
        if plain in _WITH_IN:
            if waiting:
                break
            waiting = plain
        elif plain == "in":
            if waiting and not following:
                break
            waiting = ""
    return [f"the command {waiting}, which has no `in` with something after it"] if waiting else []


def _computed(words: list[str]) -> list[str]:
    """Return the complaint about code in a tactic's options, which Lean evaluates while it elaborates.

    `(config := …)`, and the options after a tactic, may hold literals, field names, `true`, `false` and
    `.constructor`. Any other `(name := …)` may be a term's argument or a tactic's option: none may hold the unit,
    which every action needs to run.
    """
    behind = -1  # the place of a tactic's next option
    for at, word in enumerate(words[:-2]):
        if skeleton(word) in _WITH_OPTIONS or (at == behind and {word, words[at - 1]} & {"+", "-"}):
            behind = at + 1
        if word != "(" or words[at + 2] != ":=" or not _NAME.match(skeleton(words[at + 1])):
            continue
        end, name = _closing(words, at), skeleton(words[at + 1])
        value = words[at + 3 : end]
        if name in _CONFIGURATIONS or (at == behind and name not in _OPTIONS_WITH_TACTICS):
            for inner, one in enumerate(value, at + 3):
                named = words[inner - 1] == "." or words[inner + 1 : inner + 2] == [":="]
                if _NAME.match(skeleton(one)) and not named and one not in _CONSTANTS:
                    return [f"{one} in ({words[at + 1]} := …), which Lean evaluates while it elaborates"]
        if at == behind:
            behind = end + 1
        if len(value) == 1 and skeleton(value[0]) in ("Unit", "PUnit"):
            continue  # a type, which holds no action
        holds_unit = any(pair in (("(", ")"), ("⟨", "⟩")) for pair in itertools.pairwise(value))
        if holds_unit or any(_is_unit(value, inner) for inner in range(len(value))):
            return [f"the unit in ({words[at + 1]} := …), which could run an action while Lean elaborates"]
    return []


def _is_unit(words: list[str], at: int) -> bool:
    """Return whether a word is the unit or its type; `h.unit` is a projection."""
    *rest, last = skeleton(words[at]).split(".")
    return last.casefold() == "punit" or (
        last.casefold() == "unit" and (not rest or rest[-1] in ("", "Unit", "PUnit"))
    )


def _closing(words: list[str], opening: int) -> int:
    """Return the position of the bracket that closes the one at `opening`, or the end."""
    depth = 0
    for at in range(opening, len(words)):
        depth += (words[at] in _BRACKETS) - (words[at] in _CLOSERS)
        if depth == 0:
            return at
    return len(words)


def _unbalanced(words: list[str]) -> list[str]:
    stack: list[str] = []
    for word in words:
        if word in _BRACKETS:
            stack.append(_BRACKETS[word])
        elif word in _CLOSERS and (not stack or stack.pop() != word):
            return [f"a closing {word} that the replacement does not open"]
    return [f"an opening bracket without its {stack[-1]}"] if stack else []


def _ends_in_comment(replacement: str) -> bool:
    """Return whether further text on the replacement's last line would be a comment."""
    probe = "everlean_probe"
    tokens, _ = tokens_of_text(f"{replacement} {probe}")
    return not tokens or tokens[-1].text != probe
