#!/bin/bash
# pg_upgrade from this machine's server version to a later one, with a history:
# test/t/070_pg_upgrade.pl in a copy of a chroot that versions.sh has made, into
# which the server of this machine is carried. (No Debian suite has two.)
#
#   upgrade.sh             to VERSION (17), in a chroot that is removed at the end
#   upgrade.sh ROOT        ROOT: DIR/VERSION after `versions.sh make DIR`
#
# The last line is: N passed, N failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
VERSION=${VERSION:-17}
if [ $# = 0 ]; then
	dir=$(mktemp -d "${TMPDIR:-/var/tmp}/plh-upgrade.XXXXXX")
	trap 'rm -rf --one-file-system "$dir"' EXIT
	VERSIONS=$VERSION test/tools/versions.sh make "$dir"
	if [ ! -e "$dir/$VERSION.made" ]; then
		echo "PostgreSQL $VERSION: skipped, $(cat "$dir/$VERSION.skipped")"
		echo '0 passed, 0 failed'
		exit
	fi
	test/tools/upgrade.sh "$dir/$VERSION"
	exit
fi
made=$1
. test/tools/find-server.sh
pg_config=$(find_pg_config) || exit 1
old=$("$pg_config" --bindir)
old=${old%/bin}

# Beside it, where there is room, and files can share it.
root=$(mktemp -d "$made.upgrade.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# The server, and of the libraries it needs those that the later suite has no more.
carry() {
	local file
	cp -a --reflink=auto "$made/." "$root/" && chmod 755 "$root" &&
		rm -rf "$root/src" "$root$old" && mkdir -p "$root/src" "$root${old%/*}" "$root$("$pg_config" --sharedir)" &&
		cp -a "$old" "$root${old%/*}/" && cp -aL "$("$pg_config" --sharedir)/." "$root$("$pg_config" --sharedir)/" || return 1
	ldd "$old"/bin/* "$old"/lib/{plpgsql,libpqwalreceiver}.so | awk '$3 ~ /^\// { print $3 }' | sort -u |
		while read -r file; do
			[ -e "$root$file" ] || cp -L "$file" "$root$file"
		done
	chroot "$root" ldconfig &&
		tar -c --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' . | tar -x -C "$root/src" &&
		make --no-print-directory install PG_CONFIG="$pg_config" DESTDIR="$root" &&
		chroot "$root" chown -R postgres:postgres /src
}

inside() {
	GOROOT_HERE=$(go env GOROOT) GOMODCACHE_HERE=$(go env GOMODCACHE) \
		unshare --mount --propagation private --pid --fork --kill-child bash -c '
		root=$0
		mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" &&
			mount --bind "$GOROOT_HERE" "$root/usr/local/go" && mount --bind "$GOMODCACHE_HERE" "$root/gomod" || exit 125
		"$@"
		exit $?' "$root" chroot --userspec=postgres:postgres --groups= "$root" /usr/bin/env -i -C /src \
		PATH=/usr/local/go/bin:/usr/bin:/bin HOME=/tmp LC_ALL=C.UTF-8 \
		GOROOT=/usr/local/go GOMODCACHE=/gomod GOCACHE=/gocache GOFLAGS=-buildvcs=false GOPROXY=off GOTOOLCHAIN=local "$@"
}

if ! carry >"$root.log" 2>&1; then
	tail -40 "$root.log"
	rm -f "$root.log"
	echo '0 passed, 1 failed'
	exit 1
fi
rm -f "$root.log"
inside PLH_OLD_INSTALL="$old" PROVE_TESTS=test/t/070_pg_upgrade.pl PROVE_FLAGS="${PROVE_FLAGS:-}" test/tools/run-tests.sh tap
