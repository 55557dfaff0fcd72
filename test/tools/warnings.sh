#!/bin/bash
# Warnings of the C compiler that a user's build does not ask for, and versions of
# the server that have to be refused. Says all, fails if there was one.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/find-server.sh
. test/tools/find-server.sh
scratch=$(mktemp -d "${TMPDIR:-/tmp}/plh-warnings.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
bad=0
fail() {
	printf 'warnings: %s\n' "$*" >&2
	bad=1
}

# The server's headers come as system headers: their warnings are not ours.
pg_config=$(find_pg_config)
version=$(sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" control/pg_lock_history.control)
for source in extension/*.c; do
	"${CC:-gcc}" $("$pg_config" --cppflags) -isystem "$("$pg_config" --includedir-server)" \
		-DPLH_VERSION="\"$version\"" -std=gnu99 -O2 -fPIC -fno-strict-aliasing -fwrapv \
		-Wall -Wextra -Wmissing-prototypes -Wpointer-arith -Wdeclaration-after-statement -Wvla \
		-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers -Werror \
		-c "$source" -o "$scratch/out.o" || fail "compiler warnings in $source"
done

# The first thing that an old version's compiler says is that it is too old.
for unsupported in 13 14 20; do
	echo "#define PG_VERSION_NUM ${unsupported}0001" >"$scratch/postgres.h"
	"${CC:-gcc}" -fsyntax-only -I"$scratch" -Iextension extension/shmem.c 2>"$scratch/said" &&
		fail "version $unsupported is not refused"
	grep -m 1 'error:' "$scratch/said" | grep -q 'error: #error "pg_lock_history ' ||
		fail "version $unsupported is not refused in words: $(grep -m 1 'error:' "$scratch/said")"
done
exit "$bad"
