# Build, install and test pg_lock_history. `make help` lists the targets.
#
# Two libraries and one SQL script come out of it, all under PGXS rules:
#   pg_lock_history.so      the C shim (extension/), the only one the server loads
#   pg_lock_history_go.so   the Go library (gosrc/), loaded by the worker alone
#   pg_lock_history--V.sql  the parts of sql/parts, one after the other
#
# demo and test work before anything is installed: they see to their own
# dependencies, and so does this file without PGXS (see the end).

SHELL = /bin/bash

PG_CONFIG ?= $(shell . test/tools/find-server.sh && find_pg_config)
PGXS := $(if $(PG_CONFIG),$(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null)))

# The control file has the only version number.
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" control/pg_lock_history.control 2>/dev/null)

# One layer or view a file, in the order in which they are needed.
SQL_PARTS = \
	sql/parts/05_requirements.sql \
	sql/parts/10_tables.sql \
	sql/parts/20_worker.sql \
	sql/parts/30_internal.sql \
	sql/parts/40_waits.sql \
	sql/parts/41_blocking.sql \
	sql/parts/42_root_blockers.sql \
	sql/parts/43_short_waits.sql \
	sql/parts/44_gaps.sql \
	sql/parts/45_health.sql \
	sql/parts/45_nodes.sql \
	sql/parts/46_deadlocks.sql \
	sql/parts/46_recovery_conflicts.sql \
	sql/parts/47_load.sql \
	sql/parts/48_blocker_statements.sql \
	sql/parts/49_fast_path.sql \
	sql/parts/49_anomalies.sql \
	sql/parts/48_lwlocks.sql \
	sql/parts/49_hot_pages.sql \
	sql/parts/49_wait_histogram.sql \
	sql/parts/48_minutes.sql \
	sql/parts/48_load_by.sql \
	sql/parts/49_queries.sql \
	sql/parts/50_forest.sql \
	sql/parts/51_blocking_tree_at.sql \
	sql/parts/52_worst_moments.sql \
	sql/parts/53_blocking_all.sql \
	sql/parts/54_status.sql \
	sql/parts/55_keep.sql \
	sql/parts/56_reset.sql \
	sql/parts/57_reader.sql \
	sql/parts/58_writer.sql \
	sql/parts/60_live.sql \
	sql/parts/61_say.sql \
	sql/parts/62_explain_facts.sql \
	sql/parts/63_rules.sql \
	sql/parts/64_explain.sql \
	sql/parts/90_finish.sql

MODULE_big = pg_lock_history
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard extension/*.c)))
EXTENSION = control/pg_lock_history
DATA_built = build/pg_lock_history--$(EXTVERSION).sql
# shortcuts for psql, beside it
DATA = sql/pg_lock_history.psql
PGFILEDESC = "pg_lock_history - history of lock waits"
PG_CPPFLAGS = -DPLH_VERSION='"$(EXTVERSION)"'

GO ?= go
GO_LIBRARY = build/pg_lock_history_go.so
GO_SOURCES := $(shell find gosrc -name '*.go' -not -name '*_test.go') go.mod $(wildcard go.sum) extension/probe.h
# The server reads its latches through SIGURG, which Go's asynchronous
# preemption would take away; the environment cannot say so to a library in a
# server process, so the linker does. netgo, osusergo: no C resolver, which
# would run server-side code on a foreign thread.
GO_BUILD = CGO_ENABLED=1 $(GO) build -trimpath -buildvcs=false -buildmode=c-shared \
	-ldflags "-s -w -X runtime.godebugDefault=asyncpreemptoff=1"
GO_TAGS = osusergo,netgo
FAULT_LIBRARY = build/fault/pg_lock_history_go.so

EXTRA_CLEAN = build test/results tmp_check

# JIT bitcode of a shim that only copies memory would be of no use to anybody.
override with_llvm = no

# A checkout that belongs to somebody else is told as such, once, by whatever
# has to be built in it.
UNWRITABLE := $(strip $(foreach dir,. $(wildcard extension build build/fault),$(shell [ -w $(dir) ] || echo $(dir))))
ifneq ($(UNWRITABLE),)
define need_writable
	@echo "This checkout ($(CURDIR)) cannot be written to by user $$(id -un): build as its owner, or in a copy." >&2; exit 1
endef
endif

ifneq ($(PGXS),)

include $(PGXS)

ifneq ($(UNWRITABLE),)
%.o: %.c
	$(need_writable)
endif

all: $(GO_LIBRARY)

$(OBJS): $(wildcard extension/*.h) control/pg_lock_history.control

install: install-go
.PHONY: install-go uninstall-go
install-go: $(GO_LIBRARY) | installdirs
	$(INSTALL_SHLIB) $(GO_LIBRARY) '$(DESTDIR)$(pkglibdir)/'

uninstall: uninstall-go
uninstall-go:
	rm -f '$(DESTDIR)$(pkglibdir)/$(notdir $(GO_LIBRARY))'

else

.PHONY: all install clean
all install:
	@CHECK_ONLY=1 test/tools/deps.sh
	@echo "No PGXS for PG_CONFIG=$(PG_CONFIG)." >&2; exit 1
clean:
	rm -rf $(EXTRA_CLEAN) $(OBJS) $(MODULE_big).so

endif

build/pg_lock_history--$(EXTVERSION).sql: $(SQL_PARTS) Makefile
	$(need_writable)
	@mkdir -p $(@D)
	{ echo '-- Made from sql/parts by the Makefile; change those.'; \
	  echo '\echo Use "CREATE EXTENSION pg_lock_history" to load this file. \quit'; \
	  for part in $(SQL_PARTS); do printf '\n'; cat $$part || exit 1; done; } >$@.new
	mv $@.new $@

$(GO_LIBRARY): $(GO_SOURCES)
	$(need_writable)
	$(GO_BUILD) -tags $(GO_TAGS) -o $@ ./gosrc/worker

$(FAULT_LIBRARY): $(GO_SOURCES)
	$(need_writable)
	$(GO_BUILD) -tags $(GO_TAGS),faultinject -o $@ ./gosrc/worker

.PHONY: fault-library
fault-library: $(FAULT_LIBRARY)

# ---- using it without installing it ----

.PHONY: demo run
demo: deps
	@PG_CONFIG='$(PG_CONFIG)' KEEP='$(KEEP)' test/tools/demo.sh

run: deps
	@PG_CONFIG='$(PG_CONFIG)' KEEP=1 test/tools/demo.sh

.PHONY: deps
deps:
	@PG_CONFIG='$(PG_CONFIG)' test/tools/deps.sh

# ---- tests; each takes care of its own servers ----

CHOSEN = REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' \
	PROVE_TESTS='$(PROVE_TESTS)' PROVE_FLAGS='$(PROVE_FLAGS)' GO_TEST_FLAGS='$(GO_TEST_FLAGS)'
RUN_TESTS = PG_CONFIG='$(PG_CONFIG)' $(CHOSEN) test/tools/run-tests.sh

.PHONY: test test-go test-race test-sql test-isolation test-tap test-soak
test: deps
	@$(RUN_TESTS) race sql isolation tap soak
test-go: deps
	@$(RUN_TESTS) go
test-race: deps
	@$(RUN_TESTS) race
test-sql: deps
	@$(RUN_TESTS) sql
test-isolation: deps
	@$(RUN_TESTS) isolation
test-tap: deps
	@$(RUN_TESTS) tap
test-soak: deps
	@$(RUN_TESTS) soak

# The shim under the address and undefined behaviour sanitizers, and proof that
# they would have said something.
.PHONY: test-asan
test-asan: deps
	@PG_CONFIG='$(PG_CONFIG)' test/tools/asan.sh planted
	@PG_CONFIG='$(PG_CONFIG)' PROVE_TESTS='$(PROVE_TESTS)' test/tools/asan.sh

# The same on other server versions, each in a chroot (as root on Debian); KINDS and VERSIONS say which.
VERSIONS ?= 17 18 19
KINDS ?= warnings go sql isolation tap
.PHONY: test-versions
test-versions: deps
	@$(CHOSEN) VERSIONS='$(VERSIONS)' test/tools/versions.sh run $(KINDS)

# pg_upgrade to a later version, in a chroot (as root on Debian).
.PHONY: test-upgrade
test-upgrade: deps
	@PG_CONFIG='$(PG_CONFIG)' test/tools/upgrade.sh

# Random sessions against what the server says; PLH_SEED repeats a run.
RANDOM_SECONDS ?= 600
.PHONY: test-random
test-random: deps
	@PLH_RANDOM_SECONDS='$(RANDOM_SECONDS)' GO_TEST_PACKAGES=./gosrc/livetest \
		GO_TEST_FLAGS='-v -run TestSameAsServer -timeout 0 $(GO_TEST_FLAGS)' \
		PG_CONFIG='$(PG_CONFIG)' test/tools/run-tests.sh go
# A mixed load and random faults for DURATION; SEED repeats what is done.
DURATION ?= 1h
.PHONY: soak
soak: deps
	@PLH_SOAK_DURATION='$(DURATION)' PLH_SEED='$(SEED)' $(RUN_TESTS) soak
# The long form of 061_memory.pl: a storm while nothing can be written.
MINUTES ?= 60
.PHONY: soak-memory
soak-memory: deps
	@$(RUN_TESTS) tap
soak-memory: PROVE_TESTS = test/t/061_memory.pl
soak-memory: export PLH_MEMORY_MINUTES = $(MINUTES)
soak-memory: PROVE_FLAGS = -v

FUZZ_TIME ?= $(or $(FUZZTIME),20s)
.PHONY: fuzz bench
fuzz:
	@test/tools/fuzz.sh $(FUZZ_TIME)
bench: deps
	@PG_CONFIG='$(PG_CONFIG)' test/bench/run.sh

# ---- style ----

.PHONY: lint check-docs fmt
lint: deps
	@PG_CONFIG='$(PG_CONFIG)' test/tools/lint.sh
check-docs:
	@test/tools/check-docs.pl
fmt:
	gofmt -w gosrc test/bench

# ---- release ----

.PHONY: dist
dist:
	@mkdir -p build
	git archive --format=tar.gz --prefix=pg_lock_history-$(EXTVERSION)/ \
		-o build/pg_lock_history-$(EXTVERSION).tar.gz HEAD
	@echo build/pg_lock_history-$(EXTVERSION).tar.gz

.PHONY: help
help:
	@echo 'make                build the C shim, the Go library and the SQL script'
	@echo 'make install        install them for PG_CONFIG=$(PG_CONFIG)'
	@echo 'make demo           play an incident in a throwaway server and read its history'
	@echo 'make run            the same, and leave the server up with a psql (KEEP=1)'
	@echo 'make test           all tests: test-race test-sql test-isolation test-tap test-soak'
	@echo '  one test:         make test-sql REGRESS=trees'
	@echo '                    make test-isolation ISOLATION=soft_blocker'
	@echo '                    make test-tap PROVE_TESTS=test/t/001_alter_queue.pl'
	@echo '                    make test-go GO_TEST_FLAGS="-run Roots"'
	@echo 'make test-go        Go tests without the race detector (test-race: with it)'
	@echo 'make test-versions  all tests on PostgreSQL $(VERSIONS), in chroots of the Debian suites that have them'
	@echo '                    make test-versions VERSIONS="17 18" KINDS=sql REGRESS=trees'
	@echo 'make test-asan      isolation, SQL and TAP tests with a shim under the address and undefined behaviour sanitizers'
	@echo 'make test-upgrade   pg_upgrade with a history, to a later server version in a chroot'
	@echo 'make test-random    random sessions compared with pg_blocking_pids() for RANDOM_SECONDS=$(RANDOM_SECONDS)'
	@echo 'make soak           a mixed load and random faults for DURATION=$(DURATION) [SEED=]; make test-soak: in 80 s'
	@echo 'make soak-memory    memory of the worker in a storm of MINUTES=$(MINUTES) while nothing can be written'
	@echo 'make fuzz           each fuzz target for FUZZ_TIME=$(FUZZ_TIME)'
	@echo 'make bench          what watching costs, measured, all of it: writes doc/benchmarks.md (25 minutes)'
	@echo '                    make bench CASE=C, for C one of observer contention tick rate price lwlocks'
	@echo '                    storage truth fleet shutdown; QUICK=1: a minute each, no page; CASE=page: the page anew'
	@echo 'make lint           gofmt, go vet, C warnings as errors, check-docs'
	@echo 'make check-docs     settings and columns against doc/'
	@echo 'make fmt            gofmt -w'
	@echo 'make clean dist     as usual'
