#!/bin/bash
# What a shutdown takes with pg_lock_history and without it, in pairs: the test
# that shows it does not hang (test/t/073_shutdown.pl), with every pair and for
# several rounds. Fails when a median is half a second slower.
#
# Environment: ROUNDS [5]
set -euo pipefail
cd "$(dirname "$0")/../.."
figures=$(mktemp)
trap 'rm -f "$figures"' EXIT
chmod 666 "$figures"
PLH_SHUTDOWN_ROUNDS=${ROUNDS:-5} PLH_FIGURES=$figures PROVE_TESTS=test/t/073_shutdown.pl test/tools/run-tests.sh tap
echo
echo "$(uname -m), $(nproc) cores, ${ROUNDS:-5} pairs each: median in seconds with, without, and of the differences"
cat "$figures"
