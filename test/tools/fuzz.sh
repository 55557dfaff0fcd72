#!/bin/bash
# Runs every fuzz target of the Go library for the given time (default 20s).
set -euo pipefail
cd "$(dirname "$0")/../.."
grep -rl --include='*_test.go' '^func Fuzz' gosrc | while read -r file; do
	package=./$(dirname "$file")
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "== $package $target"
		go test -run='^$' -fuzz="^$target\$" -fuzztime="${1:-20s}" -fuzzminimizetime=2s "$package"
	done
done
