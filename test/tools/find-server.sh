# Sourced, by the Makefile's shell too. Which PostgreSQL is meant: PG_CONFIG
# when set, else the newest supported one that Debian's layout has, else the
# one in PATH.

find_pg_config() {
	local major candidate
	if [ -n "${PG_CONFIG:-}" ]; then
		command -v "$PG_CONFIG"
		return
	fi
	for major in 19 18 17 16 15; do
		candidate=/usr/lib/postgresql/$major/bin/pg_config
		if [ -x "$candidate" ]; then
			printf '%s\n' "$candidate"
			return
		fi
	done
	command -v pg_config
}
