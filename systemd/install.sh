#!/bin/sh
# `make install` and `make uninstall`. PREFIX (default /usr/local) holds the application, DESTDIR stages a package.
# Uninstall leaves /etc/unsorry, /var/lib/unsorry and /etc/credstore: configuration and data are the administrator's.
set -eu
action=${1:?usage: install.sh install|uninstall}
PREFIX=${PREFIX:-/usr/local}
DESTDIR=${DESTDIR:-}
PYTHON=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
lib=$PREFIX/lib/unsorry
units=/usr/lib/systemd/system
[ "$PREFIX" = /usr/local ] && units=/etc/systemd/system

case $action in
  install)
    install -d "$DESTDIR$lib" "$DESTDIR$PREFIX/bin" "$DESTDIR$units" "$DESTDIR/usr/lib/sysusers.d" \
      "$DESTDIR/usr/lib/tmpfiles.d" "$DESTDIR/etc/unsorry" "$DESTDIR$PREFIX/share/doc/unsorry"
    "$PYTHON" -m venv "$DESTDIR$lib/venv"
    env -u PYTHONDONTWRITEBYTECODE "$DESTDIR$lib/venv/bin/python" -m pip --disable-pip-version-check --quiet \
      install -c "$here/constraints.txt" "$here"
    # A virtual environment remembers where it was made; a staged one must name its final place.
    if [ -n "$DESTDIR" ]; then
      grep -rlI -- "$DESTDIR$lib/venv" "$DESTDIR$lib/venv/bin" "$DESTDIR$lib/venv/pyvenv.cfg" |
        xargs -r sed -i "s|$DESTDIR$lib/venv|$lib/venv|g"
    fi
    ln -sf "$lib/venv/bin/unsorry" "$DESTDIR$PREFIX/bin/unsorry"
    sed "s|/usr/local/lib/unsorry|$lib|; s|/usr/local/share/doc|$PREFIX/share/doc|" "$here/systemd/unsorry.service" \
      >"$DESTDIR$units/unsorry.service"
    install -m 0644 "$here/systemd/unsorry.sysusers" "$DESTDIR/usr/lib/sysusers.d/unsorry.conf"
    install -m 0644 "$here/systemd/unsorry.tmpfiles" "$DESTDIR/usr/lib/tmpfiles.d/unsorry.conf"
    install -m 0644 "$here/docs/install.md" "$DESTDIR$PREFIX/share/doc/unsorry/install.md"
    # An administrator's configuration is never replaced.
    [ -e "$DESTDIR/etc/unsorry/config.toml" ] || install -m 0644 "$here/config.toml" "$DESTDIR/etc/unsorry/config.toml"
    echo "installed below ${DESTDIR:-/}; next: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"
    ;;
  uninstall)
    rm -rf "$DESTDIR$lib" "$DESTDIR$PREFIX/share/doc/unsorry"
    rm -f "$DESTDIR$PREFIX/bin/unsorry" "$DESTDIR$units/unsorry.service" \
      "$DESTDIR/usr/lib/sysusers.d/unsorry.conf" "$DESTDIR/usr/lib/tmpfiles.d/unsorry.conf"
    echo "uninstalled; kept: /etc/unsorry, /etc/credstore, /var/lib/unsorry, /var/cache/unsorry"
    ;;
  *) echo "install.sh: unknown action $action" >&2; exit 2 ;;
esac
