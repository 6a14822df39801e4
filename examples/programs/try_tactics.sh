#!/bin/sh
# Try single tactics in the place of a sorry, and keep the first that Lean takes: a program for [[prove.programs]].
# With arguments it tries those; each begins a text that Lean compiles.
set -u
task=${EVERLEAN_TASK:?is set where everlean runs this}

field() { sed -n "s/^ \"$1\": \"\{0,1\}\(.*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$task"; }

file=$(field file) first=$(field byte_start) last=$(field byte_end)
by=''
[ "$(field mode)" = term ] && by='by '
original=$(mktemp) && cp "$file" "$original" || exit 1
lean=$(sed -n '/^ "lean": \[/,/^ \]/s/^  "\(.*\)",\{0,1\}$/\1/p' "$task" | tr '\n' ' ')

# Put a text in the sorry's place, and return whether Lean has nothing against it; what it says is in $said.
takes() {
  { head -c "$first" "$original"; printf '%s' "$1"; tail -c "+$((last + 1))" "$original"; } > "$file"
  said=$($lean "$file" 2>&1) || return 1
}

[ $# -eq 0 ] && set -- 'exact?' grind simp_all omega decide rfl assumption
for tactic; do
  takes "$by$tactic" || continue
  case $tactic in
    *\?) # It is a question: what it suggests is the proof.
      answer=$(printf '%s\n' "$said" | sed -n 's/^ *\[apply\] *//p; s/^.*Try this: *\([^ ]\)/\1/p' | head -n 1)
      [ -n "$answer" ] && takes "$by$answer" || continue ;;
  esac
  echo "taken: $by${answer:-$tactic}"
  exit 0
done
cp "$original" "$file"
echo 'none of the tactics is taken'
