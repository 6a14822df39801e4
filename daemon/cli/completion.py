"""`unsorry completion`: the script that teaches a shell to complete what is typed after `unsorry`.

The scripts know nothing themselves: each press of the key runs `unsorry` with the words so far and the variable
UNSORRY_COMPLETING, and `daemon.cli.completing` answers. So they stay right when verbs are added.
"""

from __future__ import annotations

from typing import Annotated

import typer

from daemon.cli.render import say

VARIABLE = "UNSORRY_COMPLETING"
"""Set by the scripts below: the arguments are words to complete, and no command."""

_BASH = r"""# bash completion of unsorry. For this shell: eval "$(unsorry completion bash)"; for all:
# unsorry completion bash > ~/.local/share/bash-completion/completions/unsorry
_unsorry() {
    local line word
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"); return ;;
            :dir) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "${COMP_WORDS[COMP_CWORD]}"); return ;;
            *) printf -v word '%q' "${line%%$'\t'*}"; COMPREPLY+=("$word") ;;
        esac
    done < <(UNSORRY_COMPLETING=bash "${COMP_WORDS[0]}" "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _unsorry unsorry
"""

_ZSH = r"""#compdef unsorry
# zsh completion of unsorry. For this shell, after compinit: eval "$(unsorry completion zsh)"; for all:
# unsorry completion zsh > a folder of $fpath, as _unsorry
_unsorry() {
    local line
    local -a found
    while IFS= read -r line; do
        case $line in
            (:file) _files; return ;;
            (:dir) _files -/; return ;;
            (*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
        esac
    done < <(UNSORRY_COMPLETING=zsh "${words[1]}" "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#found} )) && _describe -V 'unsorry' found
}
if [[ ${funcstack[1]} == _unsorry ]]; then
    _unsorry "$@"
else
    compdef _unsorry unsorry
fi
"""

_FISH = r"""# fish completion of unsorry. For this shell: unsorry completion fish | source; for all:
# unsorry completion fish > ~/.config/fish/completions/unsorry.fish
function __unsorry_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    for line in (env UNSORRY_COMPLETING=fish $program $words "$current" 2>/dev/null)
        switch $line
            case ':file'
                __fish_complete_path "$current"
            case ':dir'
                __fish_complete_directories "$current"
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -c unsorry -f -a '(__unsorry_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

Shell = Annotated[str, typer.Argument(metavar="SHELL", help=f"One of: {', '.join(SCRIPTS)}.")]


def register(app: typer.Typer) -> None:
    app.command("completion", help="Print the script that completes verbs, options and names in a shell.")(
        completion
    )


def completion(shell: Shell) -> None:
    if shell not in SCRIPTS:
        raise typer.BadParameter(f'"{shell}" is none of {", ".join(SCRIPTS)}', param_hint="SHELL")
    say(SCRIPTS[shell].rstrip("\n"))
