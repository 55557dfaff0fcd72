# The clock of the server is set, forwards and backwards, while sessions wait: the
# history keeps their true lengths. The server's clock is gettimeofday(), which a
# small library put before the C library's moves by what stands in a file, for all
# processes at the same moment. (libfaketime reads its file with stdio, which
# a server cannot have in its signal handlers.)
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

my $dir = PostgreSQL::Test::Utils::tempdir();
my $offset = "$dir/offset";
append_to_file("$dir/clock.c", <<"C");
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/time.h>

static const volatile int64_t *offset_us;
static int (*real) (struct timeval *, void *);

__attribute__((constructor)) static void
begin(void)
{
	int			fd = open("$offset", O_RDONLY | O_CLOEXEC);
	void	   *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

	real = (int (*) (struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	if (fd >= 0 && map != MAP_FAILED)
		offset_us = map;
}

int
gettimeofday(struct timeval *tv, void *tz)
{
	int			result = real(tv, tz);
	int64_t		now = tv->tv_sec * INT64_C(1000000) + tv->tv_usec;

	if (offset_us)
		now += *offset_us;
	tv->tv_sec = now / 1000000;
	tv->tv_usec = now % 1000000;
	return result;
}
C
# In place: the file is mapped by all who run.
sub set_clock
{
	my ($seconds) = @_;
	open my $file, '+<', $offset or die "$offset: $!";
	syswrite $file, pack 'q', $seconds * 1_000_000 or die "$offset: $!";
	close $file;
	return;
}
append_to_file($offset, pack 'q', 0);
IPC::Run::run([ $ENV{CC} // 'gcc', '-shared', '-fPIC', '-O1', '-o', "$dir/clock.so", "$dir/clock.c", '-ldl' ]) or die 'no compiler';

my $node = do
{
	local $ENV{LD_PRELOAD} = "$dir/clock.so";
	LockHistory::cluster('clock');
};
$node->safe_psql('postgres', 'CREATE TABLE public.t (i int)');
sub sql { return $node->safe_psql('postgres', $_[0]); }

set_clock(3600);
cmp_ok(abs(sql('SELECT extract(epoch FROM clock_timestamp())') - time - 3600), '<', 5, 'the clock of the server can be set');
LockHistory::flush($node);
set_clock(0);
is(sql(q{SELECT count(*) FROM lock_history.gaps WHERE reason = 'clock set' AND ended - began BETWEEN '3599 s' AND '3601 s'}), '1', 'set forwards, that is a gap, also when nobody waits');

my $holder = LockHistory::session($node, 'holder');
my $n = 0;
my $at = 0;    # what the clock is set by

# waits(name, steps): B waits behind A; meanwhile the clock goes by each of the steps.
sub waits
{
	my ($name, $end, $outcome, @steps) = @_;
	my $waiter = LockHistory::session($node, 'waiter ' . ++$n);
	$holder->run('BEGIN; LOCK TABLE t');
	my $before = clock_gettime(CLOCK_MONOTONIC);
	$waiter->send('SELECT count(*) FROM t');
	LockHistory::wait_until_waiting($node, $waiter);
	my $least = clock_gettime(CLOCK_MONOTONIC);
	my $start = sql('SELECT waitstart FROM pg_locks WHERE NOT granted');
	LockHistory::flush($node) if $end ne 'unwritten';    # it is in the tables as open
	for my $step (@steps)
	{
		usleep(150_000);
		set_clock($at += $step);
		LockHistory::flush($node);
		is(sql(q{SELECT count(*) FILTER (WHERE duration >= '0'), (SELECT count(*) FROM lock_history.blocking_now WHERE waited < '0') FROM lock_history.waits WHERE wait_end IS NULL}), '1|0',
			"$name: it goes on, for no negative time");
	}
	usleep(150_000);
	$least = clock_gettime(CLOCK_MONOTONIC) - $least;
	if ($end eq 'cancel') { sql('SELECT pg_cancel_backend(' . $waiter->pid . ')'); }
	else { $holder->run('COMMIT'); }
	$waiter->answer;
	my $most = clock_gettime(CLOCK_MONOTONIC) - $before;
	$holder->run('COMMIT') if $end eq 'cancel';
	$waiter->quit;
	my @row = split /\|/, LockHistory::history($node, "SELECT count(*), bool_and(wait_start = '$start'), min(outcome), min(extract(epoch FROM duration)) FROM lock_history.waits WHERE application_name = 'waiter $n'");
	is("@row[0, 1, 2]", "1 t $outcome", "$name: one wait, with the server's own start");
	ok($row[3] > $least - 0.02 && $row[3] < $most + 0.02, sprintf '%s: %.3f s long, was %.3f to %.3f', $name, $row[3], $least, $most);
	is(sql("SELECT bool_and(b.first_seen >= w.wait_start AND b.last_seen <= w.wait_end AND b.last_seen > b.first_seen) FROM lock_history.blocking AS b JOIN lock_history.waits AS w USING (wait_id) WHERE w.application_name = 'waiter $n'"),
		't', "$name: and its blocker for that time");
	return;
}

waits('as it is', 'grant', 'granted');
waits('an hour forwards', 'grant', 'granted', 3600);
waits('two hours back', 'grant', 'granted', -7200);
waits('forwards, cancelled', 'cancel', 'cancelled', 3600);
waits('back, cancelled', 'cancel', 'cancelled', -3600);
waits('back by less than it waits', 'cancel', 'cancelled', -0.2);
waits('to and fro', 'grant', 'granted', 600, -1800, 5);

# ---- of an open wait, what was written after the clock was set back counts ----

my $other = LockHistory::session($node, 'other');
my $waiter = LockHistory::session($node, 'behind two');
$_->run('BEGIN; SELECT count(*) FROM t') for $holder, $other;
$waiter->send('ALTER TABLE t ADD COLUMN j int');
LockHistory::wait_until_waiting($node, $waiter);
LockHistory::flush($node);
set_clock($at -= 600);
$other->run('COMMIT');
$node->poll_query_until('postgres', 'SELECT lock_history.flush() AND count(*) = 1 FROM lock_history.blocking WHERE blocker_application_name = \'other\' AND last_seen IS NOT NULL')
  or fail('the blocker that left is shown as one that stayed');
is(sql(q{SELECT last_seen >= first_seen FROM lock_history.blocking WHERE blocker_application_name = 'other'}), 't', 'one of two blockers left');
$holder->run('COMMIT');
$waiter->answer;
is(LockHistory::history($node, q{SELECT outcome, duration BETWEEN '0' AND '1 min' FROM lock_history.waits WHERE application_name = 'behind two'}), 'granted|t', 'and then the other');

is(sql('SELECT count(*) FROM lock_history.waits WHERE duration < \'0\''), '0', 'no duration is negative');
is(sql('SELECT count(*) FROM lock_history.short_waits WHERE total_ms < 0 OR max_ms > 60000'), '0', 'nor one of the short waits');
is(sql('SELECT count(*) FROM lock_history.root_blockers WHERE blocked_time < \'0\' OR blocked_time > \'5 min\''), '0', 'nor the time that somebody blocked');
$_->quit for $holder, $other, $waiter;
$node->stop;
done_testing();
