# Sourced. A copy of a PostgreSQL installation in a directory of its own, with
# pg_lock_history installed into the copy, and clusters in there: nothing of a
# demo or a test writes to the system's installation or needs rights there.
#
# A server finds its share and lib directories relative to its own binary. So
# the binaries are real files in the same relative layout, lib and
# share/extension are real directories that can take our files, and everything
# else is a link to the original.
#
#   throwaway_begin           sets THROWAWAY, BINDIR, PG_CONFIG and PATH
#   install_here ROOT         builds and installs into a copy
#   as_server_user CMD...     runs CMD as the user who may run a server
#   start_cluster NAME        makes and starts a cluster; sets SOCKET_DIR, PORT;
#                             settings come from stdin
#   stop_cluster NAME
#   throwaway_end             stops and removes everything, also from a trap

# shellcheck source=test/tools/find-server.sh
. "$(dirname "${BASH_SOURCE[0]}")/find-server.sh"

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# copy_installation FROM_PG_CONFIG ROOT
copy_installation() {
	local bin lib share locale root=$2 file
	bin=$("$1" --bindir) lib=$("$1" --pkglibdir) share=$("$1" --sharedir) locale=$("$1" --localedir)
	mkdir -p "$root$bin" "$root$lib" "$root$share/extension"
	cp -L "$bin"/* "$root$bin/"
	# The server's messages in other languages.
	if [ -d "$locale" ] && [ ! -e "$root$locale" ]; then
		mkdir -p "$root${locale%/*}"
		ln -s "$locale" "$root$locale"
	fi
	for file in "$lib"/*; do
		ln -s "$file" "$root$lib/"
	done
	for file in "$share"/*; do
		[ "${file##*/}" = extension ] || ln -s "$file" "$root$share/"
	done
	for file in "$share"/extension/*; do
		ln -s "$file" "$root$share/extension/"
	done
	# A pg_lock_history of the system must not be written through a link.
	rm -f "$root$lib"/pg_lock_history* "$root$share"/extension/pg_lock_history*
}

install_here() {
	local log=$1/install.log
	if ! make --no-print-directory -C "$CHECKOUT" install PG_CONFIG="$SYSTEM_PG_CONFIG" DESTDIR="$1" >"$log" 2>&1; then
		cat "$log" >&2
		return 1
	fi
}

throwaway_begin() {
	local name
	for name in $(compgen -v PG | grep -v -x -e PG_CONFIG -e PG_TEST_EXTRA -e PG_TEST_TIMEOUT_DEFAULT); do
		unset "$name"
	done
	SYSTEM_PG_CONFIG=$(find_pg_config) || {
		echo "no PostgreSQL found: install one or set PG_CONFIG" >&2
		return 1
	}
	if [ "$(id -u)" = 0 ] && ! id postgres >/dev/null 2>&1; then
		echo "a PostgreSQL server does not run as root, and there is no user postgres to run it as" >&2
		return 1
	fi
	# Socket paths have room for about 100 bytes: keep it short.
	THROWAWAY=$(mktemp -d "${TMPDIR:-/tmp}/plh.XXXXXX")
	trap throwaway_end EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	chmod 755 "$THROWAWAY"
	mkdir "$THROWAWAY/clusters" "$THROWAWAY/s"
	own "$THROWAWAY/clusters" "$THROWAWAY/s"
	copy_installation "$SYSTEM_PG_CONFIG" "$THROWAWAY"
	BINDIR=$THROWAWAY$("$SYSTEM_PG_CONFIG" --bindir)
	PG_CONFIG=$BINDIR/pg_config
	PATH=$BINDIR:$PATH
	SOCKET_DIR=$THROWAWAY/s
	export PATH
}

# own FILE...: gives files to the user who runs the servers.
own() {
	if [ "$(id -u)" = 0 ]; then
		chown -R postgres: "$@"
	fi
}

# The working directory may be one that the other user cannot enter.
as_server_user() {
	if [ "$(id -u)" = 0 ]; then
		(cd "$THROWAWAY" && exec runuser -u postgres -- env HOME="$THROWAWAY" "$@")
	else
		(cd "$THROWAWAY" && exec env HOME="$THROWAWAY" "$@")
	fi
}

# The number is only part of the socket's name, the directory is ours alone.
start_cluster() {
	local data=$THROWAWAY/clusters/$1
	PORT=$((5500 + $(find "$THROWAWAY/clusters" -maxdepth 1 -type d | wc -l)))
	as_server_user "$BINDIR/initdb" -D "$data" -U postgres --auth=trust --no-sync \
		--encoding=UTF8 --locale=C >"$THROWAWAY/initdb.log" 2>&1 || {
		cat "$THROWAWAY/initdb.log" >&2
		return 1
	}
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$SOCKET_DIR'"
		echo "port = $PORT"
		echo "fsync = off"
		echo "log_line_prefix = '%m [%p] %b '"
		cat
	} >>"$data/postgresql.conf"
	as_server_user "$BINDIR/pg_ctl" -D "$data" -l "$THROWAWAY/clusters/$1.log" -w -s start || {
		tail -30 "$THROWAWAY/clusters/$1.log" >&2
		return 1
	}
}

stop_cluster() {
	local data=$THROWAWAY/clusters/$1
	[ ! -e "$data/postmaster.pid" ] ||
		as_server_user "$BINDIR/pg_ctl" -D "$data" -w -s -m "${2:-fast}" stop
}

# Every server below our directory, whoever started it (TAP tests make their
# own), by the pid in its own file.
stop_all() {
	local file pid tries
	while read -r file; do
		pid=$(head -1 "$file" 2>/dev/null) || continue
		[ -n "$pid" ] || continue
		kill -QUIT "$pid" 2>/dev/null || continue
		for ((tries = 0; tries < 100; tries++)); do
			kill -0 "$pid" 2>/dev/null || continue 2
			sleep 0.05
		done
		kill -KILL "$pid" 2>/dev/null || true
	done < <(find "$THROWAWAY" -name postmaster.pid 2>/dev/null)
}

throwaway_end() {
	local code=$?
	trap - EXIT
	trap '' INT TERM HUP
	[ -z "$(type -t before_throwaway_end)" ] || before_throwaway_end || true
	stop_all
	cd /
	rm -rf "$THROWAWAY"
	exit "$code"
}
