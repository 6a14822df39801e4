"""The commands about expressions and the environment: `expr.*`, `env.*`."""

from __future__ import annotations

from pipeline.lean.simulator import kernel, saved
from pipeline.lean.simulator.constants import structure, symbol
from pipeline.lean.simulator.core import Core, read_text, write_text
from pipeline.lean.simulator.elaborator import Elaborator
from pipeline.lean.simulator.kernel import Constant, Environment, KernelError
from pipeline.lean.simulator.meta import LeanError, Meta
from pipeline.lean.simulator.modules import EMPTY, ImportFailure
from pipeline.lean.simulator.protocol import Json, Payload, Refusal
from pipeline.lean.simulator.syntax import ParseError, Stx
from pipeline.lean.simulator.tactic_parser import Parser, parse_term
from pipeline.lean.simulator.terms import Sorry, Term, constants, has_mvar, has_sorry
from pipeline.lean.simulator.units import byte_offsets


def parsed(text: str, kind: str = "parsing") -> Stx:
    """Parse a term; what is none is refused with the given kind of error."""
    try:
        return parse_term(text)
    except ParseError as error:
        raise Refusal(kind, f"<input>:1:{error.offset}: {error.message}") from None


def checked_type(core: Core, text: str) -> tuple[Meta, Term]:
    """Elaborate a closed type and have the kernel look at it.

    Raises:
        Refusal: of kind `parsing` or `elab`.
    """
    stx = parsed(text)
    meta = Meta(core.env)
    try:
        elaborator = Elaborator(meta, core.session(unlimited=True))
        statement = elaborator.finished(elaborator.type(stx))
        kernel.check(core.env, Sorry(statement), statement)
    except (LeanError, KernelError) as error:
        raise Refusal("elab", str(error)) from None
    return meta, statement


def expr_echo(core: Core, payload: Payload) -> Json:
    stx = parsed(payload.text("expr"))
    wanted = payload.maybe_text("type")
    meta = Meta(core.env)
    elaborator = Elaborator(meta, core.session())
    try:
        expected = None if wanted is None else elaborator.finished(elaborator.type(parsed(wanted)))
    except (LeanError, KernelError) as error:
        raise Refusal("elab", str(error)) from None
    try:
        term = elaborator.finished(elaborator.term(stx, expected))
        kind = meta.instantiate(meta.infer(term))
        if not has_mvar(term):
            kernel.check(core.env, term, kind)
    except (LeanError, KernelError) as error:
        raise Refusal("elab" if expected is None else "typing", str(error)) from None
    shapes = core.shapes(meta)
    return {"expr": shapes.expression(term), "type": shapes.expression(kind)}


def env_describe(core: Core, _payload: Payload) -> Json:
    return {"imports": list(core.imports), "modules": core.modules.closure(core.imports)}


def env_catalog(core: Core, payload: Payload) -> Json:
    if core.dialect == "old":
        return {"symbols": [symbol(constant) for constant in core.env.table.values()]}
    prefix, inverted = payload.maybe_text("modulePrefix"), payload.flag("invertFilter")
    chosen = [
        constant
        for constant in core.env.table.values()
        if prefix is None or _within(constant.module, prefix) != inverted
    ]
    write_text(payload.text("filename"), "".join(f"{symbol(constant)}\n" for constant in chosen))
    return {"nSymbols": len(chosen)}


def _within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def env_inspect(core: Core, payload: Payload) -> Json:
    name = payload.text("name")
    constant = core.env.get(name)
    if constant is None:
        raise Refusal("index", f"Symbol not found {name}")
    shapes = core.shapes(Meta(core.env))
    reply: Json = {"type": shapes.expression(constant.type), "isUnsafe": False, **structure(name)}
    if constant.module:
        reply["module"] = constant.module
    shows_value = payload.maybe_flag("value")
    if constant.value is not None and (shows_value or (shows_value is None and not constant.is_theorem)):
        reply["value"] = shapes.expression(constant.value)
    if payload.flag("dependency"):
        reply["typeDependency"] = constants(constant.type)
        if "value" in reply and constant.value is not None:
            found = constants(constant.value)
            reply["valueDependency"] = [*found, *(["sorryAx"] if has_sorry(constant.value) else [])]
    if payload.flag("source"):
        reply |= _source(core, constant)
    return reply


def _source(core: Core, constant: Constant) -> Json:
    """Return where a constant stands, as far as it is known: no file for what is of no imported module."""
    module = core.modules.find(constant.module) if constant.module else None
    where = core.ranges.get(constant.name) if module is None else module.ranges.get(constant.name)
    shown: Json = {}
    if module is not None and module.path is not None:
        shown["sourceUri"] = module.path.as_uri()
    if where is not None:
        shown["sourceStart"] = {"line": where.start[0], "column": where.start[1]}
        shown["sourceEnd"] = {"line": where.end[0], "column": where.end[1]}
    return shown


def env_add(core: Core, payload: Payload) -> Json:
    name, kind_text = payload.text("name"), payload.maybe_text("type")
    value_stx = parsed(payload.text("value"), "expr")
    kind_stx = None if kind_text is None else parsed(kind_text, "expr")
    meta = Meta(core.env)
    elaborator = Elaborator(meta, core.session())
    try:
        kind = None if kind_stx is None else elaborator.finished(elaborator.type(kind_stx))
        value = elaborator.finished(elaborator.term(value_stx, kind))
        kind = meta.instantiate(meta.infer(value)) if kind is None else kind
    except (LeanError, KernelError) as error:
        raise Refusal("expr", str(error)) from None
    try:
        core.env = core.env.define(name, kind, value, is_theorem=payload.flag("isTheorem"))
    except KernelError as error:
        raise Refusal("exception", f"(kernel) {error}") from None
    return {}


def env_parse(_core: Core, payload: Payload) -> Json:
    text, category = payload.text("input"), payload.text("category")
    readers = {"tactic": Parser.one_tactic, "term": Parser.term}
    if category not in readers:
        raise Refusal("parse", f"simulator: outside its logic: the syntax category `{category}`")
    try:
        parser = Parser(text)
        readers[category](parser)
    except ParseError as error:
        raise Refusal("parse", f"<input>:1:{error.offset}: {error.message}") from None
    return {"pos": byte_offsets(text)(parser.last_end())}


def env_save(core: Core, payload: Payload) -> Json:
    write_text(payload.text("path"), saved.environment_text(core.imports, core.env))
    return {}


def env_load(core: Core, payload: Payload) -> Json:
    path = payload.text("path")
    try:
        imports, made = saved.read_environment(read_text(path))
        env = core.modules.environment(imports) if imports else EMPTY
        core.env = _replayed(env, made)
    except saved.NotSaved as error:
        raise Refusal("io", f"{path}: {error}") from None
    except (ImportFailure, KernelError) as error:
        raise Refusal("exception", f"{path}: {error}") from None
    core.imports, core.ranges = tuple(imports), {}
    return {}


def _replayed(env: Environment, made: list[Constant]) -> Environment:
    """Add constants again, through the kernel, which also finds anew what axioms they rest on."""
    for constant in made:
        if constant.value is None:
            env = env.assume(constant.name, constant.type)
        else:
            env = env.define(constant.name, constant.type, constant.value, is_theorem=constant.is_theorem)
    return env


ENVIRONMENT_COMMANDS = {
    "expr.echo": expr_echo,
    "env.describe": env_describe,
    "env.catalog": env_catalog,
    "env.inspect": env_inspect,
    "env.add": env_add,
    "env.parse": env_parse,
    "env.save": env_save,
    "env.load": env_load,
}
