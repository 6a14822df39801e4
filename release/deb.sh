#!/bin/sh
# Make a Debian package of the application, its units, users and folders: sh release/deb.sh OUT [files]
#
# The application is a virtual environment of exactly the locked versions below /usr/lib/everlean: Debian has not all of them. It
# runs by the Python that made it, so the package depends on that one. With `files` the application is left out.
set -eu
out=${1:?usage: deb.sh OUT [files]}
action=${2:-install}
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHON=${PYTHON:-python3}
version=$(cd "$here/release" && "$PYTHON" -c 'import version; print(version.__version__)')
minor=$("$PYTHON" -c 'import sys; print(sys.version_info[1])')
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 0755 "$stage"
PREFIX=/usr DESTDIR=$stage PYTHON=$PYTHON sh "$here/systemd/install.sh" "$action" >/dev/null
install -D -m 0644 "$here/LICENSE" "$stage/usr/share/doc/everlean/copyright"
install -d "$stage/DEBIAN"
cat >"$stage/DEBIAN/control" <<CONTROL
Package: everlean
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: ${MAINTAINER:-everlean <root@localhost>}
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), git, bubblewrap, ca-certificates, systemd
Recommends: curl
Section: science
Priority: optional
Description: daemon that watches Lean 4 repositories
 Finds the sorries of watched repositories, records everything in an append-only log, searches for proofs, and hands
 over patches that Lean itself has checked again.
CONTROL
echo /etc/everlean/config.toml >"$stage/DEBIAN/conffiles"
cat >"$stage/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  systemd-sysusers everlean.conf
  systemd-tmpfiles --create everlean.conf
  systemctl daemon-reload
  # Not started before somebody has named a repository; one that runs takes the new version.
  systemctl try-restart everlean.service everlean-serve.service
fi
SCRIPT
cat >"$stage/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl disable --now everlean.service everlean-serve.service
fi
SCRIPT
cat >"$stage/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
# What was recorded stays, on purge too: /var/lib/everlean is the log.
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
SCRIPT
chmod 0755 "$stage/DEBIAN/postinst" "$stage/DEBIAN/prerm" "$stage/DEBIAN/postrm"
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$stage" "$out" >/dev/null
ls "$out"/everlean_*.deb
