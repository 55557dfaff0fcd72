#!/bin/bash
# Sees to it that everything is there that building, the demo and the tests
# need. As root on Debian it installs what is missing (the distribution's own
# PostgreSQL, nothing newer from elsewhere); as anybody else, or with
# CHECK_ONLY=1, it says exactly what is missing and fails.
#
# Only distribution packages are handled here: Go modules come by `go build`.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/find-server.sh
. test/tools/find-server.sh

want_go=$(sed -n 's/^go \([0-9.]*\)$/\1/p' go.mod)
if ! command -v go >/dev/null; then
	echo "deps: Go $want_go or newer is needed and not in PATH; see https://go.dev/doc/install" >&2
	exit 1
fi
have_go=$(go env GOVERSION)
have_go=${have_go#go}
if [ "$(printf '%s\n' "$want_go" "${have_go%%[!0-9.]*}" | sort -V | head -1)" != "$want_go" ]; then
	echo "deps: Go $want_go or newer is needed, $(command -v go) is $have_go" >&2
	exit 1
fi

# A package is wanted only when what it brings is missing, so that a compiler
# or a PostgreSQL from elsewhere is as good as the distribution's.
missing=()
command -v "${CC:-gcc}" >/dev/null || missing+=(gcc)
command -v make >/dev/null || missing+=(make)
command -v perl >/dev/null || missing+=(perl)
command -v runuser >/dev/null || missing+=(util-linux)
[ -e /usr/include/stdio.h ] || missing+=(libc6-dev)
perl -MIPC::Run -e1 2>/dev/null || missing+=(libipc-run-perl)

pg_config=$(find_pg_config || true)
if [ -n "${PG_CONFIG:-}" ] && [ -z "$pg_config" ]; then
	if [ -e "$PG_CONFIG" ]; then
		echo "deps: PG_CONFIG=$PG_CONFIG cannot be executed" >&2
	else
		echo "deps: PG_CONFIG=$PG_CONFIG does not exist; leave it out to take the PostgreSQL that is found" >&2
	fi
	exit 1
fi
needs_server=
if [ -z "$pg_config" ] || [ ! -x "$("$pg_config" --bindir)/postgres" ] ||
	[ ! -e "$("$pg_config" --includedir-server)/postgres.h" ] ||
	[ ! -e "$("$pg_config" --pgxs)" ]; then
	needs_server=yes
fi

if [ -z "$needs_server" ] && [ ${#missing[@]} -eq 0 ]; then
	exit 0
fi

can_install=
if [ "$(id -u)" = 0 ] && [ -z "${CHECK_ONLY:-}" ] && command -v apt-get >/dev/null; then
	can_install=yes
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q >&2
fi

if [ -n "$needs_server" ]; then
	# The major version that is half installed already, else the distribution's.
	major=
	if [ -n "$pg_config" ]; then
		major=$("$pg_config" --version | sed -n 's/^PostgreSQL \([0-9]*\).*/\1/p')
	elif command -v apt-cache >/dev/null; then
		major=$(apt-cache depends postgresql 2>/dev/null |
			sed -n 's/.*Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -1)
	fi
	if [ -z "$major" ]; then
		major=15
	fi
	[ -x "/usr/lib/postgresql/$major/bin/postgres" ] || missing+=("postgresql-$major")
	missing+=("postgresql-server-dev-$major")
fi

if [ -n "$can_install" ]; then
	echo "deps: installing ${missing[*]}" >&2
	apt-get install -qy --no-install-recommends "${missing[@]}" >&2
	exit 0
fi

{
	echo "deps: missing: ${missing[*]}"
	echo "deps: on Debian or Ubuntu, as root:"
	echo "    apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
} >&2
exit 1
