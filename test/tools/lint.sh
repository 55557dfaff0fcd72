#!/bin/bash
# What CI is strict about and a user's build is not: gofmt, go vet, warnings
# of the C compiler, SQL parts that the Makefile forgets, documents that do
# not say what the code says. Runs all, fails if one failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
bad=0
fail() {
	printf 'lint: %s\n' "$*" >&2
	bad=1
}

unformatted=$(gofmt -l gosrc test/bench)
[ -z "$unformatted" ] || fail "gofmt -w is wanted for" $unformatted

go vet -tags osusergo,netgo ./gosrc/... ./test/bench/... || fail "go vet"
go vet -tags osusergo,netgo,faultinject ./gosrc/worker || fail "go vet with tag faultinject"

test/tools/warnings.sh || fail "the C compiler"

for part in sql/parts/*.sql; do
	grep -q -F "$part" Makefile || fail "$part is not in SQL_PARTS of the Makefile"
done

test/tools/check-docs.pl || fail "check-docs"

if [ "$bad" = 0 ]; then
	echo "lint: clean"
fi
exit "$bad"
