#!/bin/sh
# `make install` and `make uninstall` (also `install-user`, `uninstall-user`). PREFIX (default /usr/local) holds the
# application, DESTDIR stages a package. `files` installs all but the application, with a PYTHON that has everlean;
# it needs no network.
# Uninstall leaves the administrator's configuration, credentials and data.
set -eu
usage="usage: install.sh install|files|uninstall [--user]"
action=${1:?$usage}
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
PYTHON=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
lib=$PREFIX/lib/everlean
doc=$PREFIX/share/doc/everlean
man=$PREFIX/share/man/man1/everlean.1
case ${2:-} in
  --user)
    config=${XDG_CONFIG_HOME:-$HOME/.config}
    units=$config/systemd/user
    etc=$config/everlean
    from=$here/systemd/user
    then="systemctl --user daemon-reload && systemctl --user enable --now everlean"
    ;;
  "")
    units=/usr/lib/systemd/system
    [ "$PREFIX" = /usr/local ] && units=/etc/systemd/system
    etc=/etc/everlean
    from=$here/systemd
    then="systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"
    ;;
  *) echo "install.sh: unknown option $2; $usage" >&2; exit 2 ;;
esac
# A shell and its place for completions.
completions="bash:$PREFIX/share/bash-completion/completions/everlean
zsh:$PREFIX/share/zsh/site-functions/_everlean
fish:$PREFIX/share/fish/vendor_completions.d/everlean.fish"
put() { install -D -m 0644 "$1" "$DESTDIR$2"; }
# Put the output of a command under a name; a failure leaves nothing there.
print_to() {
  name=$DESTDIR$1
  shift
  install -d "$(dirname "$name")"
  "$@" >"$name.new" && chmod 0644 "$name.new" && mv "$name.new" "$name"
}
# The script for a shell, by the application's Python; zsh reads its first line.
completion() {
  text=$(_EVERLEAN_COMPLETE="source_$2" "$1" -P -m daemon.cli) && printf '%s\n' "$text" | sed '/./,$!d'
}

application() {
  "$PYTHON" -m venv "$DESTDIR$lib/venv"
  pip="env -u PYTHONDONTWRITEBYTECODE $DESTDIR$lib/venv/bin/python -m pip --disable-pip-version-check --quiet"
  # Exactly the locked files, by their hashes.
  $pip install --require-hashes -r "$here/locks/core.txt"
  # Our own wheel is built with locked tools too, in a throw-away environment.
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$PYTHON" -m venv "$work/venv"
  build="$work/venv/bin/python -m pip --disable-pip-version-check --quiet"
  $build install --require-hashes -r "$here/locks/build.txt"
  $build wheel --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$here"
  $pip install --no-deps --no-index --force-reinstall "$work"/wheel/*.whl
  # A virtual environment holds its own path; a staged one must hold its final one.
  if [ -n "$DESTDIR" ]; then
    grep -rlI -- "$DESTDIR$lib/venv" "$DESTDIR$lib/venv/bin" "$DESTDIR$lib/venv/pyvenv.cfg" |
      xargs -r sed -i "s|$DESTDIR$lib/venv|$lib/venv|g"
  fi
}

# Its argument: the application's Python.
files() {
  install -d "$DESTDIR$PREFIX/bin" "$DESTDIR$units" "$DESTDIR$etc"
  ln -sf "$lib/venv/bin/everlean" "$DESTDIR$PREFIX/bin/everlean"
  for unit in everlean everlean-serve; do
    sed "s|/usr/local/lib/everlean|$lib|; s|/usr/local/share/doc|$PREFIX/share/doc|" "$from/$unit.service" \
      >"$DESTDIR$units/$unit.service"
  done
  if [ "$etc" = /etc/everlean ]; then
    put "$here/systemd/everlean.sysusers" /usr/lib/sysusers.d/everlean.conf
    put "$here/systemd/everlean.tmpfiles" /usr/lib/tmpfiles.d/everlean.conf
  fi
  "$1" -P "$here/release/documents.py" pages "$DESTDIR$doc"
  print_to "$man" "$1" -P "$here/release/documents.py" man
  # The administrator chooses drop-ins, so they lie beside the documents.
  for drop_in in gpu gpu-amd; do put "$here/systemd/$drop_in.conf" "$doc/$drop_in.conf"; done
  for one in $completions; do print_to "${one#*:}" completion "$1" "${one%%:*}"; done
  # An administrator's configuration is never replaced.
  [ -e "$DESTDIR$etc/config.toml" ] || put "$here/config.toml" "$etc/config.toml"
}

case $action in
  install) application; files "$DESTDIR$lib/venv/bin/python"; echo "installed in $DESTDIR$lib, units in $DESTDIR$units, settings in $DESTDIR$etc; next: $then" ;;
  files) files "$PYTHON"; echo "installed without the application: units in $DESTDIR$units, settings in $DESTDIR$etc; next: $then" ;;
  uninstall)
    rm -rf "$DESTDIR$lib" "$DESTDIR$doc"
    rm -f "$DESTDIR$man" "$DESTDIR$PREFIX/bin/everlean" "$DESTDIR$units/everlean.service" "$DESTDIR$units/everlean-serve.service"
    [ "$etc" != /etc/everlean ] ||
      rm -f "$DESTDIR/usr/lib/sysusers.d/everlean.conf" "$DESTDIR/usr/lib/tmpfiles.d/everlean.conf"
    for one in $completions; do rm -f "$DESTDIR${one#*:}"; done
    if [ "$etc" = /etc/everlean ]; then
      echo "uninstalled; kept: /etc/everlean, /etc/credstore, /var/lib/everlean, /var/cache/everlean"
    else
      echo "uninstalled; kept: $etc, and what the daemon has written in this home (its state and cache folders)"
    fi
    ;;
  *) echo "install.sh: unknown action $action; $usage" >&2; exit 2 ;;
esac
