#!/bin/bash
# What CI is strict about and a user's build is not: gofmt, go vet, warnings
# of the C compiler, SQL parts that the Makefile forgets, documents that do
# not say what the code says. Runs all, fails if one failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=test/tools/find-server.sh
. test/tools/find-server.sh
scratch=$(mktemp -d "${TMPDIR:-/tmp}/plh-lint.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
bad=0
fail() {
	printf 'lint: %s\n' "$*" >&2
	bad=1
}

unformatted=$(gofmt -l gosrc test/bench)
[ -z "$unformatted" ] || fail "gofmt -w is wanted for" $unformatted

go vet -tags osusergo,netgo ./gosrc/... ./test/bench/... || fail "go vet"
go vet -tags osusergo,netgo,faultinject ./gosrc/worker || fail "go vet with tag faultinject"

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

for part in sql/parts/*.sql; do
	grep -q -F "$part" Makefile || fail "$part is not in SQL_PARTS of the Makefile"
done

test/tools/check-docs.pl || fail "check-docs"

if [ "$bad" = 0 ]; then
	echo "lint: clean"
fi
exit "$bad"
