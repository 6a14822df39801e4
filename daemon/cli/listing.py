"""Groups whose bare name lists: `unsorry jobs` is `unsorry jobs list`.

Options of the list may be given before the verb as well: `unsorry jobs --json show ID` means the same as
`unsorry jobs show ID --json`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer


def listing_group(rows: Callable[..., None], *, help_text: str, list_help: str) -> typer.Typer:
    """Return a group that calls `rows` for its bare name and for `list`, with the same options."""
    group = typer.Typer(help=help_text, rich_markup_mode=None)

    def bare(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            rows(**given)
            return
        # Click reads a verb's missing options from here.
        chosen = {name: value for name, value in given.items() if value is not None and value is not False}
        context.default_map = {context.invoked_subcommand: chosen}

    own = inspect.signature(rows, eval_str=True)
    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    bare.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    group.callback(invoke_without_command=True)(bare)
    group.command("list", help=list_help)(rows)
    return group


def given_before(context: typer.Context, name: str) -> bool:
    """Return whether an option was given to the group before this verb."""
    return context.parent is not None and context.parent.params.get(name) is not None


def check_choice(value: str | None, choices: tuple[str, ...], *, option: str) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        typer.BadParameter: with the choices in its message.
    """
    if value is not None and value not in choices:
        raise typer.BadParameter(f'"{value}" is none of {", ".join(choices)}', param_hint=option)
