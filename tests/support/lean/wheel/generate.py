"""Write Grammar.lean and Show.lean: the grammar rules, macros and printers that Lean's shared library holds.

    python generate.py LIBRARY FOLDER

Lean's own Init declares its tactics with `syntax`. The value of each such declaration, a `ParserDescr`, is static
data of the shared library under a symbol made from the declaration's name; only the .olean files, which declare
the names, are not in it. So a declaration with `@[extern "SYMBOL"]` and the parser attribute brings a rule back,
and likewise for macros and for the functions that print `p ∧ q` for `And p q`.

A rule is found by what lies in memory once the library has initialised itself: an object of the right shape whose
first field is a name that makes the symbol's name.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Name = tuple[str | int, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Rules of `import Lean` or Std, or about types that the library here does not have.
_LEFT_OUT = _words("""
    Array.tactic BitVec. DerivingHelpers List.tactic Rat. Std. String.Internal Vector. commandDeclare
    Lean.Attr.simprocBuiltin Lean.Compiler Lean.Doc Lean.Elab.Command Lean.Elab.ConfigEval Lean.Elab.Tactic.command
    Lean.Elab.Tactic.configElab Lean.Elab.Term Lean.Json Lean.Linter Lean.Meta Lean.Option Lean.Order.term
    Lean.Parser.Attr.cbvSimprocBuiltin Lean.Parser.Attr.sevalprocBuiltin Lean.Parser.Attr.simprocBuiltin
    Lean.Parser.Command.register Lean.Parser.Command.sym Lean.Parser.Sym Lean.Parser.cbvSimprocPatternBuiltin
    Lean.Parser.command_Builtin Lean.Parser.command__Builtin Lean.Parser.grindPropagator
    Lean.Parser.simprocPatternBuiltin Lean.PostprocessTraces Lean.PrettyPrinter Lean.Server Lean.Widget
    Lean.binderPredX Lean.builtin_ Lean.byElab Lean.commandDeclare Lean.command_code Lean.doElemTrace Lean.runCmd
    Lean.runElab Lean.runMeta Lean.setLibrary Lean.suggest Lean.termM! Lean.termMacro.trace Lean.termRegister
    Lean.termThrow Lean.testExtern
""")
# The proof mode for separation logic (mintro, mspec, …) is Std's.
_PROOF_MODE = re.compile(
    r"(^|\.)(m(assumption|cases|clear|constructor|dup|exact|exfalso|exists|frame|have|intro|leave|left|pure"
    r"|refine|rename|replace|revert|right|spec|start|stop|vcgen)\w*|tacticMvcgen\w*|vcgen\w*|mgoal\w*)"
)

# The syntax category of a rule is not in its value. It follows from the last part of its name (`tacticFoo_`), or
# from the namespace, but for the rules in this table.
_CATEGORY_OF = {
    rule: category
    for category, rules in {
        "attr": """Lean.Attr.coe Lean.Parser.Attr.grind_mod Lean.deprecated Lean.deprecated_arg
            Lean.univ_out_params""",
        "command": """Lean.Grind.grindLintCheck Lean.Grind.grindLintInspect Lean.Grind.grindLintMute
            Lean.Grind.grindLintSkip Lean.Parser.Tactic.declareSimpLikeTactic Lean.Parser.cbvSimprocPattern
            Lean.Parser.checkSimp Lean.Parser.checkSimpFailure Lean.Parser.checkTactic
            Lean.Parser.checkTacticFailure Lean.Parser.discrTreeKeyCmd Lean.Parser.discrTreeSimpKeyCmd
            Lean.Parser.resetGrindAttrs Lean.Parser.simprocPattern Lean.Parser.timeCmd Lean.guardMsgsCmd
            Lean.guardPanicCmd Lean.infoTreesCmd Lean.reduceCmd""",
        "conv": """Lean.Parser.Tactic.Conv.convConvSeq Lean.Parser.Tactic.guardExprConv
            Lean.Parser.Tactic.guardHypConv Lean.Parser.Tactic.guardTargetConv Lean.convCalc_""",
        "doElem": "Lean.Parser.Term.InternalSyntax.doSkip",
        "prec": """Lean.Parser.Syntax.addPrec Lean.Parser.Syntax.subPrec precArg precLead precMax precMin
            precMin1""",
        "prio": "Lean.Parser.Syntax.addPrio Lean.Parser.Syntax.subPrio",
        "stx": "stx_*",
        "tactic": """Lean.Order.monotonicity Lean.Parser.Tactic.Conv.conv Lean.calcTactic Lean.cdot
            Lean.solveTactic""",
        "term": """Lean.Parser.Syntax.exact? Lean.Parser.Tactic.by? Lean.Parser.Tactic.showTermElab Lean.calc
            Lean.includeStr Lean.modCast Lean.withAnnotateTerm boolIfThenElse coeFunNotation coeNotation
            coeSortNotation rawNatLit""",
    }.items()
    for rule in _words(rules)
}
_CATEGORY_OF_PREFIX = (
    *(
        "tactic",
        "command",
        "rcasesPat",
        "rintroPat",
        "grind_ref",
        "grind_filter",
        "grind_mod",
        "grind",
        "conv",
    ),
    *("binderPred", "doElem", "prec", "prio", "stx", "term"),
)
_CATEGORY_OF_NAMESPACE = {
    "Lean.Elab.Tactic.Ext": "tactic",
    "Lean.Parser.Attr": "attr",
    "Lean.Parser.Command": "command",
    "Lean.Parser.Tactic": "tactic",
    "Lean.Parser.Tactic.Conv": "conv",
    "Lean.Parser.Tactic.Grind": "grind",
    "Lean.Parser.Tactic.rcasesPat": "rcasesPat",
    "Lean.Parser.Tactic.rintroPat": "rintroPat",
}
# Not built into the parser; in `conv` and `grind` an identifier may be a keyword as well.
_NEW_CATEGORIES = (
    *(
        "rcasesPat",
        "rintroPat",
        "conv",
        "grind",
        "grind_filter",
        "grind_ref",
        "grind_mod",
        "binderPred",
        "rawStx",
    ),
)
_BOTH = " (behavior := both)"
# A rule is registered after the categories that its own text mentions.
_ORDER = (
    *("prec", "prio", "stx", "attr", "binderPred", "rcasesPat", "rintroPat", "grind_mod", "grind_filter"),
    *("grind_ref", "grind", "conv", "term", "doElem", "tactic", "command"),
)

# The constants with a notation; Init's `notation` and `infix` left one printer or more for each.
_PRINTED = {
    constant.replace(".", "_"): constant
    for constant in _words("""
    Ne And Or Iff Eq HEq Not Exists HAdd.hAdd HSub.hSub HMul.hMul HDiv.hDiv HMod.hMod HPow.hPow HAppend.hAppend LE.le
    LT.lt GE.ge GT.gt Prod PProd Sum PSum Membership.mem BEq.beq List.cons Function.comp and or not Bool.and Bool.or
    Bool.not Subtype Sigma PSigma Nat.succ
    """)
}
# Printers that Init declares by hand.
_PRINTERS = {
    "unexpandEqNDRec": "Eq.ndrec",
    "unexpandEqRec": "Eq.rec",
    "unexpandExists": "Exists",
    "unexpandIte": "ite",
    "unexpandListCons": "List.cons",
    "unexpandListNil": "List.nil",
    "unexpandPSigma": "PSigma",
    "unexpandSigma": "Sigma",
    "unexpandSubtype": "Subtype",
    "unexpandUnit": "Unit.unit",
}
# Words that a name's part has to be quoted for.
_KEYWORDS = _words("""
    at binder by calc cases class conv def deprecated deriving else end exists export extends first from fun have if
    in instance let macro match notation open paren prefix rec seal sorry structure suffices syntax then theorem
    show unseal
""")

# Constructors of `Lean.ParserDescr`, as an object's tag says: (tag, number of fields) and where the name is.
_NODE, _TRAILING_NODE, _NODE_WITH_ANTIQUOTATION = 3, 4, 9
_NAME_AT = {(_NODE, 3): 8, (_TRAILING_NODE, 4): 8, (_NODE_WITH_ANTIQUOTATION, 3): 16}
_STRING_TAG = 249
_ANONYMOUS = 1  # `Lean.Name.anonymous` has no fields, so it is a tagged number


@dataclass(frozen=True, slots=True)
class Rule:
    symbol: str
    tag: int
    name: Name


@dataclass(frozen=True, slots=True)
class Helper:
    """A macro or printer: its symbol, its declaration's name in Lean, and what it expands or prints, mangled."""

    symbol: str
    declaration: str
    subject: str


def exported(library: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the data and the functions of Lean declarations that a shared library exports, with their addresses.

    Addresses are relative to where the library is loaded. Read from the ELF file's .dynsym and .dynstr.
    """
    image = library.read_bytes()
    (sections,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, sections + size * i) for i in range(count)]
    table = next(header for header in headers if header[1] == 11)  # SHT_DYNSYM
    strings = headers[table[6]][4]
    data: dict[str, int] = {}
    functions: dict[str, int] = {}
    for name, info, _, section, address, _ in struct.iter_unpack(
        "<IBBHQQ", image[table[4] : table[4] + table[5]]
    ):
        kind, at = info & 15, strings + name
        if section and kind in (1, 2) and image.startswith(b"l_", at):  # STT_OBJECT, STT_FUNC
            symbol = image[at : image.index(b"\0", at)].decode()
            (data if kind == 1 else functions)[symbol] = address
    return data, functions


class _Memory:
    """Lean objects of this process, read through /proc: a wrong address raises ValueError and does not crash."""

    def __init__(self) -> None:
        self._file = os.open("/proc/self/mem", os.O_RDONLY)

    def _read(self, at: int, size: int) -> bytes:
        try:
            data = os.pread(self._file, size, at)
        except (OSError, OverflowError) as error:
            raise ValueError(f"nothing at {at:#x}") from error
        if len(data) != size:
            raise ValueError(f"nothing at {at:#x}")
        return data

    def word(self, at: int) -> int:
        return int.from_bytes(self._read(at, 8), "little")

    def shape(self, at: int) -> tuple[int, int]:
        """Return tag and number of fields of the object at an address."""
        if at % 8:
            raise ValueError(f"no object at {at:#x}")
        fields, tag = self._read(at + 6, 2)
        return tag, fields

    def name(self, at: int, depth: int = 40) -> Name:
        if at == _ANONYMOUS:
            return ()
        tag, fields = self.shape(at)
        if fields != 2 or tag not in (1, 2) or depth == 0:
            raise ValueError(f"no name at {at:#x}")
        before, last = self.name(self.word(at + 8), depth - 1), self.word(at + 16)
        if tag == 2:
            return (*before, last >> 1)
        if self.shape(last)[0] != _STRING_TAG:
            raise ValueError(f"no string at {last:#x}")
        return (*before, self._read(last + 32, self.word(last + 8) - 1).decode())


def mangled(text: str) -> str:
    """Write a part of a name as Lean's compiler does in symbols."""

    def one(c: str) -> str:
        if c.isascii() and c.isalnum():
            return c
        return "__" if c == "_" else f"_x{ord(c):02x}" if ord(c) < 256 else f"_u{ord(c):04x}"

    return "".join(map(one, text))


def unmangled(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else "_" if match[0] == "__" else "."

    return re.sub(r"_x([0-9a-f]{2})|_u([0-9a-f]{4})|__|_", one, text)


def symbol_of(name: Name) -> str:
    return "l_" + "_".join(mangled(str(part)) for part in name)


def _dotted(name: Name) -> str:
    return ".".join(map(str, name))


def _quoted(name: Name) -> str:
    def one(part: str) -> str:
        plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_'?!]*", part) and part not in _KEYWORDS
        return part if plain else f"«{part}»"

    return ".".join(one(str(part)) for part in name)


def rules(data: dict[str, int], base: int) -> Iterator[Rule]:
    """Yield the grammar rules wanted among the library's data, in the order of its symbol table."""
    memory = _Memory()
    for symbol, address in data.items():
        if "___closed" in symbol or "_value" in symbol:
            continue
        try:
            at = memory.word(base + address)
            shape = memory.shape(at)
            if shape not in _NAME_AT:
                continue
            name = memory.name(memory.word(at + _NAME_AT[shape]))
        except ValueError:  # the symbol is something else than an initialised object
            continue
        text = _dotted(name)
        if symbol_of(name) == symbol and not text.startswith(_LEFT_OUT) and not _PROOF_MODE.search(text):
            yield Rule(symbol, shape[0], name)


def category(name: Name) -> str | None:
    """Return the syntax category of a rule; None for one that other rules use by its name."""
    text, space, last = _dotted(name), _dotted(name[:-1]), str(name[-1])
    if text in _CATEGORY_OF:
        return _CATEGORY_OF[text]
    if space == "Lean.Parser.Tactic" and last.startswith(("grind", "conv")):
        return "tactic"
    if space != "Lean.Parser.Attr":
        for prefix in _CATEGORY_OF_PREFIX:
            if last.startswith(prefix) and not last[len(prefix) : len(prefix) + 1].islower():
                return prefix
    return _CATEGORY_OF_NAMESPACE.get(space)


def helpers(functions: dict[str, int], what: str) -> Iterator[Helper]:
    """Yield the functions that Init's `macro` ("macroRules") or `notation` ("unexpand") left in the library."""
    form = re.compile(rf"l_(?:(.*?)_)?__aux__(Init.*?)______{what}__(.*)__(\d+)$")
    for symbol in functions:
        match = form.match(symbol)
        if not match or re.search(r"___boxed|___lam|___closed|___redArg|spec__|lambda", symbol):
            continue
        last = f"_aux_{unmangled(match[2])}___{what}_{unmangled(match[3])}_{match[4]}"
        space = unmangled(match[1]).split(".") if match[1] else []
        if symbol_of((*space, last)) == symbol:
            yield Helper(symbol, ".".join([*space, f"«{last}»"]), match[3])


def _header(above: str) -> Iterator[str]:
    """Yield the first lines of a module whose declarations run while other files are elaborated, and show all."""
    yield from ("module", "prelude", f"public import {above}", f"public meta import {above}")
    yield "@[expose] public meta section"


def grammar(found: list[Rule], functions: dict[str, int]) -> Iterator[str]:
    """Yield the lines of Grammar.lean."""
    yield from _header("Init.Base")
    yield "open Lean (Macro)"
    for name in _NEW_CATEGORIES:
        yield f"declare_syntax_cat {name}{_BOTH if name in ('conv', 'grind') else ''}"
    for rule in found:
        kind = "Lean.TrailingParserDescr" if rule.tag == _TRAILING_NODE else "Lean.ParserDescr"
        yield f'@[extern "{rule.symbol}"] def {_quoted(rule.name)} : {kind} := .const .anonymous'
    for wanted in _ORDER:
        for rule in found:
            if rule.tag != _NODE_WITH_ANTIQUOTATION and category(rule.name) == wanted:
                yield f"attribute [{wanted}_parser 1000] {_quoted(rule.name)}"
    kinds = {mangled("_".join(map(str, rule.name))): rule.name for rule in found}
    for macro in helpers(functions, "macroRules"):
        if kind_of := kinds.get(macro.subject):
            yield f'@[extern "{macro.symbol}"] def {macro.declaration} : Macro :='
            yield "  fun _ _ s => .error .unsupportedSyntax s"
            yield f"attribute [macro {_quoted(kind_of)}] {macro.declaration}"


def show(functions: dict[str, int]) -> Iterator[str]:
    """Yield the lines of Show.lean."""
    yield from _header("Init.Macro")
    yield "open Lean.PrettyPrinter (Unexpander)"
    printers = [
        (helper.symbol, helper.declaration, _PRINTED[unmangled(helper.subject)])
        for helper in helpers(functions, "unexpand")
        if unmangled(helper.subject) in _PRINTED
    ]
    printers += [(f"l_{name}", name, of) for name, of in _PRINTERS.items() if f"l_{name}" in functions]
    for symbol, declaration, constant in printers:
        yield f'@[extern "{symbol}"] def {declaration} : Unexpander := fun _ _ s => .error .unit s'
        yield f"attribute [app_unexpander {constant}] {declaration}"


def main() -> None:
    library, folder = map(Path, sys.argv[1:])
    data, functions = exported(library)
    loaded = ctypes.CDLL(os.fspath(library))
    loaded.lean_initialize()
    anchor = next(iter(functions))
    address = ctypes.cast(getattr(loaded, anchor), ctypes.c_void_p).value or 0
    found = list(rules(data, address - functions[anchor]))
    (folder / "Grammar.lean").write_text("\n".join(grammar(found, functions)) + "\n", "utf-8")
    (folder / "Show.lean").write_text("\n".join(show(functions)) + "\n", "utf-8")
    sys.stdout.flush()
    os._exit(0)  # Lean's threads are not to be waited for


if __name__ == "__main__":
    main()
