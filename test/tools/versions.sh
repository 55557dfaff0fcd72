#!/bin/bash
# Tests on other server versions than the machine's own: each in a chroot of
# the Debian suite that has it, with Go and its module cache carried in.
#
#   versions.sh make DIR          makes DIR/17, DIR/18 ... and builds in them
#   versions.sh test DIR KIND...  runs these kinds of tests (run-tests.sh) in each
#   versions.sh run KIND...       both, in a directory that is removed at the end
#
# VERSIONS says which (17 18 19). One that cannot be had is skipped, with the
# reason; what was made and does not build or pass has failed. REGRESS and so
# on choose single tests. The last line is: N passed, N failed.
#
# Packages are unpacked, not installed: no script of theirs runs. Where mounting
# is allowed, what is mounted is so in a namespace of its own, with processes of its
# own: whatever ends this script, nothing of it is left but files below DIR.
set -uo pipefail
cd "$(dirname "$0")/../.."
VERSIONS=${VERSIONS:-17 18 19}

# The suites in which to look for a version, best first; a+b: b on top of a.
suites_of() {
	case $1 in
	17) echo trixie ;;
	18) echo forky sid ;;
	*) echo forky sid sid+experimental ;;
	esac
}

# What a shell, the build and the tests need beside the server.
PACKAGES=base-files,bash,coreutils,dash,debianutils,diffutils,findutils,gcc,grep,gzip,libc-bin,libc6-dev
PACKAGES+=,libipc-run-perl,make,mawk,perl,procps,sed,tar,util-linux

# Debian's mirror, as the machine's own sources have it.
mirror() {
	grep -hoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
		grep -v security | head -1 | tr -d ' '
}

say() { printf '%s\n' "$*" >&2; }

# unpack VERSION SUITE ROOT: the suite's server, compiler and shell.
unpack() {
	local version=$1 suite=${2%+*} also=${2#*+} root=$3 mirror sources options=()
	mirror=$(mirror)
	sources=("deb $mirror $suite main")
	if [ "$also" != "$suite" ]; then
		# Of the second suite nothing but PostgreSQL.
		sources+=("deb $mirror $also main")
		options+=(--setup-hook="mkdir -p \"\$1/etc/apt/preferences.d\"
			printf 'Package: libpq5 postgresql*\nPin: release a=$also\nPin-Priority: 600\n' >\"\$1/etc/apt/preferences.d/also\"")
	fi
	[ "$NAMESPACES" = yes ] || options+=(--skip=chroot/mount)
	# The headers' package depends on clang and llvm, which nobody needs here.
	options+=(--extract-hook="cd \"\$1/tmp\" && APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-get -q -o APT::Sandbox::User=root \
		download postgresql-server-dev-$version && dpkg-deb -x postgresql-server-dev-$version*.deb \"\$1\"")
	mmdebstrap --mode=root --variant=extract --include="$PACKAGES,postgresql-$version" \
		--aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
		--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Retries "3"' \
		"${options[@]}" "$suite" "$root" "${sources[@]}"
}

# settle ROOT: what the packages' scripts would have done, as far as it matters.
settle() {
	local root=$1
	chroot "$root" ldconfig &&
		ln -sf mawk "$root/usr/bin/awk" && ln -sf gcc "$root/usr/bin/cc" &&
		printf '%s\n' root:x:0:0::/root:/bin/sh postgres:x:900:900::/tmp:/bin/sh nobody:x:65534:65534::/:/bin/false >"$root/etc/passwd" &&
		printf '%s\n' root:x:0: postgres:x:900: nogroup:x:65534: >"$root/etc/group" &&
		printf '%s\n' '127.0.0.1 localhost' '::1 localhost' >"$root/etc/hosts" &&
		mkdir -p "$root"/{proc,dev/shm,tmp,usr/local/go,gomod,gocache,src} &&
		chmod 1777 "$root/tmp" "$root/dev/shm" &&
		cp -a "$DIR/src/." "$root/src/" &&
		chroot "$root" chown -R postgres:postgres /src /gocache || return 1
	[ "$NAMESPACES" = yes ] && return
	cp -a "$(go env GOROOT)/." "$root/usr/local/go/" && cp -a "$(go env GOMODCACHE)/." "$root/gomod/" || return 1
	for device in 'null 1 3' 'zero 1 5' 'random 1 8' 'urandom 1 9'; do
		set -- $device
		[ -c "$root/dev/$1" ] || mknod -m 666 "$root/dev/$1" c "$2" "$3" || return 1
	done
}

# inside ROOT COMMAND...: runs it in there as user postgres.
inside() {
	local root=$1 enter
	shift
	enter=(chroot --userspec=postgres:postgres --groups= "$root" /usr/bin/env -i -C /src
		PATH=/usr/local/go/bin:/usr/bin:/bin HOME=/tmp LC_ALL=C.UTF-8
		GOROOT=/usr/local/go GOMODCACHE=/gomod GOCACHE=/gocache GOFLAGS=-buildvcs=false GOPROXY=off GOTOOLCHAIN=local
		REGRESS="${REGRESS:-}" ISOLATION="${ISOLATION:-}" PROVE_TESTS="${PROVE_TESTS:-}" PROVE_FLAGS="${PROVE_FLAGS:-}" PROVE_JOBS="${PROVE_JOBS:-1}"
		GO_TEST_FLAGS="${GO_TEST_FLAGS:-}" GO_TEST_PACKAGES="${GO_TEST_PACKAGES:-}"
		PG_TEST_TIMEOUT_DEFAULT="${PG_TEST_TIMEOUT_DEFAULT:-60}" "$@")
	if [ "$NAMESPACES" != yes ]; then
		"${enter[@]}"
		return
	fi
	# bash stays, as process 1 of the namespace: it takes in those whose parent has ended.
	GOROOT_HERE=$(go env GOROOT) GOMODCACHE_HERE=$(go env GOMODCACHE) \
		unshare --mount --propagation private --pid --fork --kill-child bash -c '
		root=$0
		mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" &&
			mount --bind "$GOROOT_HERE" "$root/usr/local/go" && mount --bind "$GOMODCACHE_HERE" "$root/gomod" &&
			mount --bind "$root/../gocache" "$root/gocache" || exit 125
		"$@"
		exit $?' "$root" "${enter[@]}"
}

# can_make: says why not.
can_make() {
	if [ "$(id -u)" != 0 ]; then
		echo 'needs root, for chroot'
	elif [ -z "$(mirror)" ]; then
		echo 'no Debian mirror in the sources of apt'
	elif ! command -v mmdebstrap >/dev/null &&
		! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends mmdebstrap; } >"$DIR/mmdebstrap.log" 2>&1; then
		echo 'mmdebstrap is missing and could not be installed'
	else
		return 0
	fi
	return 1
}

# make_one VERSION: DIR/VERSION and DIR/VERSION.made, or DIR/VERSION.skipped with the reason.
make_one() {
	local version=$1 root=$DIR/$1 log=$DIR/$1.log suite
	for suite in $(suites_of "$version"); do
		rm -rf "$root"
		if unpack "$version" "$suite" "$root" >"$log" 2>&1; then
			echo "$(chroot "$root" "/usr/lib/postgresql/$version/bin/pg_config" --version 2>/dev/null | sed 's/^PostgreSQL \([^ ]*\).*/\1/') of Debian $suite" >"$root.made"
			settle "$root" >>"$log" 2>&1 || touch "$root.broken"
			return
		fi
	done
	rm -rf "$root"
	{
		printf 'not to be had from %s: ' "$(suites_of "$version" | tr ' ' ',')"
		grep -a -m 1 '^E: ' "$log" || echo 'no reason given'
	} >"$root.skipped"
}

# build_one VERSION: DIR/VERSION.broken when that fails.
build_one() {
	inside "$DIR/$1" make all fault-library >>"$DIR/$1.log" 2>&1 || touch "$DIR/$1.broken"
}

make_all() {
	local version reason
	# A copy: what is built there must not get into this checkout. It comes first,
	# before anything is built here at the same time.
	mkdir -p "$DIR/src"
	tar -c --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' . | tar -x -C "$DIR/src"
	if ! reason=$(can_make); then
		for version in $VERSIONS; do echo "$reason" >"$DIR/$version.skipped"; done
		return
	fi
	go mod download
	for version in $VERSIONS; do
		make_one "$version" &
	done
	wait
	# One after the other: what Go has compiled for the first serves the others.
	mkdir -p "$DIR/gocache"
	chown 900:900 "$DIR/gocache"
	for version in $VERSIONS; do
		[ ! -e "$DIR/$version.made" ] || build_one "$version" &
		wait "$!"
	done
}

# test_one VERSION KIND...: what is said goes to DIR/VERSION.out.
test_one() {
	local version=$1 out=$DIR/$1.out
	shift
	printf '\n== PostgreSQL %s\n' "$(cat "$DIR/$version.made")" >"$out"
	if [ -e "$DIR/$version.broken" ]; then
		tail -40 "$DIR/$version.log" >>"$out"
	else
		inside "$DIR/$version" test/tools/run-tests.sh "$@" >>"$out" 2>&1
	fi
}

# test_all KIND...: all at the same time, since tests mostly wait; told in turn.
test_all() {
	local version passed=0 failed=0 last summary=()
	for version in $VERSIONS; do
		[ ! -e "$DIR/$version.made" ] || test_one "$version" "$@" &
	done
	wait
	for version in $VERSIONS; do
		if [ ! -e "$DIR/$version.made" ]; then
			summary+=("PostgreSQL $version: skipped, $(cat "$DIR/$version.skipped")")
			continue
		fi
		sed '/^[0-9]* passed, [0-9]* failed$/d' "$DIR/$version.out"
		last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$DIR/$version.out" | tail -1)
		last=${last:-0 passed, 1 failed}
		passed=$((passed + ${last%% *})) failed=$((failed + $(sed 's/.*, \([0-9]*\) .*/\1/' <<<"$last")))
		summary+=("PostgreSQL $(cat "$DIR/$version.made"): $last")
	done
	printf '\n== server versions\n'
	printf '%s\n' "${summary[@]}"
	echo "$passed passed, $failed failed"
	[ "$failed" = 0 ]
}

NAMESPACES=no
! unshare --mount --propagation private --pid --fork --kill-child mount -t tmpfs tmpfs /mnt 2>/dev/null || NAMESPACES=yes

# Each job is a process group of its own, so that it can be ended with all that it runs.
set -m
REMOVE=
at_end() {
	local job
	for job in $(jobs -p); do
		kill -TERM -- "-$job" 2>/dev/null
	done
	wait
	[ -z "$REMOVE" ] || rm -rf --one-file-system "$REMOVE"
}
trap at_end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

case ${1:-} in
make)
	DIR=${2:?directory}
	make_all
	;;
test)
	DIR=${2:?directory}
	shift 2
	test_all "$@"
	;;
run)
	shift
	DIR=$(mktemp -d "${TMPDIR:-/var/tmp}/plh-versions.XXXXXX")
	REMOVE=$DIR
	say "Making chroots for PostgreSQL $VERSIONS ..."
	make_all
	say "Testing in them; what is said goes to $DIR/*.out first ..."
	test_all "$@"
	;;
*)
	sed -n '2,/^set /p' "$0" | sed '$d' >&2
	exit 2
	;;
esac
