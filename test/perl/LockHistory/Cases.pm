
=head1 NAME

LockHistory::Cases - incidents as data: what sessions do, and what the history must say

=head1 SYNOPSIS

  LockHistory::Cases::run($node, {
    name  => 'alter-behind-reader',
    setup => 'create table t (i int)',
    steps => q{
      0.0 A: begin; select count(*) from t
      0.5 B: alter table t add column j int          -- waits
      1.0 tree: A, .B hard
      2.0 A: commit
    },
    waits => q{
      B | AccessExclusiveLock | relation t | hard A | soft - | root A | granted | 1.5-1.6
    },
  }, ...);

All cases of one call run at the same time, in one event loop, each in a schema
of its own. A letter is a session named "case letter"; B<whoever has no line in
waits must have no episode>.

=head2 Steps

A step begins when the one before it is true, and not earlier after it than the
clock times say. It is true when its statements are done; with C<-- waits>, when
the session is seen waiting; with C<-- runs>, at once. Other steps:

  2.0 tree: A, .B hard, ..C soft     the tree of that moment; dots are levels; "cycle" may follow
  1.5 note x:                        {x} is this moment from now on
  0.0 find W: select pid from ...    {W} is that process, once the query finds one
  0.1 done A:                        true when A has its answers
  0.1 quit A:                        ends the session
  2.0 do stop:                       calls do => { stop => sub { ... } } of the case

C<{A}> in a statement is the pid of A.

=head2 Waits

Waiter, mode, lock type and object (without the schema; numbers that differ
from run to run are X; C<transactionid A> is A's transaction), hard blockers, soft blockers, roots, outcome, and how
long in seconds, give or take what the steps came late. With C<blind =E<gt> 1> the sampler is not there all the time, and
what pg_locks showed is not compared. In parentheses: who may
have come in before the end; a star says nothing. C<B+>: further waits of B, up
to 0.3 s in all, may follow. C<B*>: one such wait or more, and no other. Of a
wait for a transaction one more field tells the row behind it; without it there
must be none.

What is compared beyond that: everything that pg_locks showed waiting, looked at
every 20 ms by a session of this module, must be there with the server's own start to the
microsecond and an end to within a sampling period and the scheduler's slack.

=cut

package LockHistory::Cases;

use strict;
use warnings FATAL => 'all';

use Carp;
use IO::Select;
use List::Util qw(max min sum0 uniq);
use LockHistory;
use LockHistory::Wire;
use Test::More;
use Time::HiRes qw(time);

my $PERIOD = 0.010;    # sample_period of these servers
my $SLACK  = 0.060;    # a busy machine runs a sampler or a session so much later
my $LOOK   = 0.020;    # how often pg_locks is looked at
my $HANDOVER = 0.100;  # see "hand-over" in doc/views.md
my $GIVE_UP  = 60;     # a step that does not come true within so many seconds

# cluster(name, settings): every wait is kept, by a sampler of 10 ms.
sub cluster
{
	my ($name, %o) = @_;
	my $node = LockHistory::cluster($name, %o, settings => join "\n",
		"max_connections = 250", "pg_lock_history.sample_period = '10ms'", "pg_lock_history.min_duration = 0",
		"autovacuum = off", $o{settings} // '');
	return $node;
}

sub run
{
	my ($node, @cases) = @_;
	my $user = $node->safe_psql('postgres', 'SELECT current_user');
	my $self = bless {
		node => $node, user => $user, cases => [ map { parse($_) } @cases ],
		seen => {}, looks => [], look_at => 0, looked => 0, began => time }, __PACKAGE__;
	$self->set_up($_) for @{ $self->{cases} };
	$self->{eye} = LockHistory::Wire->new($node, user => $user, database => 'postgres', application_name => 'eye');
	my $n = 0;
	$_->{due} = time + 0.3 + 0.031 * $n++ for @{ $self->{cases} };
	$self->play;
	LockHistory::flush($node);
	$self->read_history;
	$self->judge($_) for @{ $self->{cases} };
	$_->quit for map { values %{ $_->{session} } } @{ $self->{cases} };
	$self->{eye}->quit;
	return;
}

# ---- a case as it is written ----

sub parse
{
	my ($written) = @_;
	my %case = (setup => '', waits => '', sessions => {}, gids => {}, ask => [], %$written, at => {}, actor => {}, trouble => []);
	($case{schema} = "case_$case{name}") =~ tr/-/_/;
	$case{steps} = [ map { parse_step($_) } grep { /\S/ } split /\n/, $case{steps} ];
	$case{waits} = [ map { parse_wait($_) } grep { /\S/ } split /\n/, $case{waits} ];
	return \%case;
}

sub parse_step
{
	my ($line) = @_;
	my ($t, $what, $who, $text, $until) = $line =~ /^\s*([\d.]+)\s+(?:(tree|note|find|quit|done|do)\s*)?(\w*):\s*(.*?)(?:\s+--\s+(waits|runs))?\s*$/
	  or croak "not a step: $line";
	return { t => $t, what => $what // 'sql', who => $who, text => $text, until => $until // 'done' };
}

sub parse_wait
{
	my ($line) = @_;
	my ($who, $mode, $on, $hard, $soft, $root, $end, $long, $row) = map { s/^\s+|\s+$//gr } split /\|/, $line;
	my %w = (mode => $mode, on => $on, end => $end, row => $row, each => $who =~ s/\*$// ? 1 : 0, more => $who =~ s/\+$// ? 1 : 0, who => $who);
	($w{least}, $w{most}) = ($long // '') =~ /^([\d.]+)-([\d.]+)$/ or croak "how long? $line";
	# A transaction is told with who has it and the row behind the wait.
	if ($on =~ /^(transactionid|virtualxid) (?:(\w+)|'(.*)')$/)
	{
		$w{on} = "$1 " . ($1 eq 'virtualxid' ? 'virtual ' : '') . 'transaction X (' . (defined $2 ? "pid $2" : "prepared as $3") . ')';
		$w{on} .= ", tuple $2 of $1" if ($row // '') =~ /^(\S+) (\(.*\))$/;
	}
	for ([ hard => $hard ], [ soft => $soft ], [ root => $root ])
	{
		my ($kind, $said) = @$_;
		$said =~ s/^$kind\s+// or croak "$kind? $line";
		$w{$kind} = $said;
	}
	return \%w;
}

# ---- playing it ----

sub set_up
{
	my ($self, $case) = @_;
	my $node = $self->{node};
	$case->{database} //= 'postgres';
	for my $db (grep { $_ ne 'postgres' } uniq $case->{database}, map { $_->{database} // () } values %{ $case->{sessions} })
	{
		next if $node->safe_psql('postgres', "SELECT count(*) FROM pg_database WHERE datname = '$db'");
		$node->safe_psql('postgres', "CREATE DATABASE $db");
	}
	$node->safe_psql($case->{database}, "CREATE SCHEMA $case->{schema}; SET search_path = $case->{schema}, public;\n$case->{setup}");
	for my $who (uniq map { $_->{who} } grep { $_->{what} eq 'sql' } @{ $case->{steps} })
	{
		$case->{session}{$who} = LockHistory::Wire->new($node,
			user => $self->{user}, database => $case->{database}, application_name => "$case->{name} $who",
			search_path => "$case->{schema}, public", %{ $case->{sessions}{$who} // {} });
	}
	return;
}

sub play
{
	my ($self) = @_;
	my $select = IO::Select->new;
	my %of;
	for my $wire ($self->{eye}, map { values %{ $_->{session} } } @{ $self->{cases} })
	{
		$select->add($wire->socket);
		$of{ fileno $wire->socket } = $wire;
	}
	my ($turn, $stall) = (time, 0);
	while (grep { !$_->{over} } @{ $self->{cases} })
	{
		($turn, $stall) = (time, max($stall, time - $turn));
		for my $socket ($select->can_read(0.002))
		{
			my $no = fileno $socket;
			$of{$no}->read;
			$select->remove($no) if $of{$no}->closed;
		}
		$select->remove(grep { !defined fileno $_ } $select->handles);
		$self->look;
		$self->advance($_) for grep { !$_->{over} } @{ $self->{cases} };
	}
	note(sprintf 'steps came up to %.3f s late, the loop stood up to %.3f s', max(0, map { $_->[1] } map { @{ $_->{late} // [] } } @{ $self->{cases} }), $stall);

	# One more look, for the ends of the last waits.
	my $until = $self->{looked} + 2;
	while ($self->{looked} < $until)
	{
		$self->{eye}->read for $select->can_read(0.002);
		$self->look;
	}
	return;
}

# Looks at pg_locks again and again.
sub look
{
	my ($self) = @_;
	my $eye = $self->{eye};
	return if !$eye->done || time < $self->{look_at};
	if (my $asked = delete $self->{asked})
	{
		my $now = time;
		push @{ $self->{looks} }, [ @{ $self->{looks} } ? $self->{looks}[-1][1] : $asked, $now ];
		my %there;
		for my $row (@{ $eye->rows })
		{
			my ($pid, $start, $type, $mode) = @$row;
			my $wait = $self->{seen}{"$pid $start"} //= { pid => $pid, start => $start, type => $type, mode => $mode, first => $now };
			# A new wait is shown with the start of the one before for a moment.
			next if $wait->{gone};
			$wait->{last} = $asked;
			$there{"$pid $start"} = 1;
		}
		$_->{gone} //= $now for map { $self->{seen}{$_} } grep { !$there{$_} } keys %{ $self->{seen} };
		$self->{looked}++;
	}
	$self->{look_at} = time + $LOOK;
	$self->{asked} = time;
	$eye->send('SELECT pid, extract(epoch FROM waitstart), locktype, mode FROM pg_catalog.pg_locks WHERE NOT granted AND waitstart IS NOT NULL');
	return;
}

sub is_seen_waiting
{
	my ($self, $wire) = @_;
	my $pid = $wire->pid // return 0;
	return grep { $_->{pid} == $pid && !$_->{gone} && $_->{start} >= $wire->{sent_at} - 0.001 } values %{ $self->{seen} };
}

# Begins the next step of a case when it is time to.
sub advance
{
	my ($self, $case) = @_;
	my $now = time;
	my $step = $case->{steps}[0];
	if (my $last = $case->{last})
	{
		my $wire = $case->{session}{ $last->{who} // '' };
		my $true =
		    $case->{true}            ? 1
		  : $last->{what} eq 'find'  ? $self->found($case, $last)
		  : $last->{what} eq 'done'  ? $wire->done
		  : $last->{what} ne 'sql'   ? 1
		  : $last->{until} eq 'runs' ? 1
		  : $last->{until} eq 'done' ? $wire->done
		  : !@{ $wire->{queue} } && $self->is_seen_waiting($wire);
		$case->{true} ||= $true;
		if (!$case->{true})
		{
			return if $now - $case->{began} < $GIVE_UP;
			push @{ $case->{trouble} }, "gave up at: $last->{t} $last->{who}: $last->{text} (should: $last->{until})";
			$case->{over} = 1;
			return;
		}
	}
	else
	{
		return if $now < $case->{due} || grep { !$_->done } values %{ $case->{session} };
	}
	if (!$step)
	{
		# Over when everybody has an answer.
		$case->{over} = 1 if !grep { !$_->done } values %{ $case->{session} };
		if ($now - $case->{began} > $GIVE_UP)
		{
			$case->{over} = 1;
			push @{ $case->{trouble} }, 'still waiting at the end: ' . join ' ', grep { !$case->{session}{$_}->done } sort keys %{ $case->{session} };
		}
		return;
	}
	return if $case->{last} && $now < $case->{began} + $step->{t} - $case->{last}{t};
	shift @{ $case->{steps} };
	push @{ $case->{late} }, [ $now, $now - $case->{began} - $step->{t} + $case->{last}{t} ] if $case->{last};
	$case->{began} = $now;
	$case->{last} = $step;
	$case->{true} = 0;
	if ($step->{what} eq 'sql')
	{
		$case->{session}{ $step->{who} }->send($self->statements($case, $step->{text}));
	}
	elsif ($step->{what} eq 'quit')
	{
		$case->{session}{ $step->{who} }->quit;
	}
	elsif ($step->{what} eq 'find')
	{
		$self->found($case, $step);
	}
	elsif ($step->{what} eq 'do')
	{
		$case->{do}{ $step->{who} }->();
	}
	elsif ($step->{what} ne 'done')
	{
		$step->{at} = $now;
		$case->{at}{ $step->{who} } = $now if $step->{what} eq 'note';
		push @{ $case->{trees} }, $step if $step->{what} eq 'tree';
	}
	return;
}

# A process that is no session of ours; asked by a session of its own, since
# the query may have to be repeated while others go on.
sub found
{
	my ($self, $case, $step) = @_;
	my $wire = $case->{session}{finder} //= do
	{
		my $wire = LockHistory::Wire->new($self->{node}, user => $self->{user}, database => 'postgres', application_name => 'finder');
		$wire->send($self->statements($case, $step->{text}));
		$wire;
	};
	$wire->read;
	return 0 if !$wire->done;
	if (@{ $wire->rows })
	{
		$case->{actor}{ $step->{who} } = $wire->rows->[0][0];
		delete($case->{session}{finder})->quit;
		return 1;
	}
	return 0 if time - $wire->{sent_at} < $LOOK;
	$wire->send($self->statements($case, $step->{text}));
	return 0;
}

# The statements of a text, each to be sent alone.
sub statements
{
	my ($self, $case, $text) = @_;
	return grep { /\S/ } $self->filled($case, $text) =~ /((?:\$\$.*?\$\$|'[^']*'|[^;])+)/gs;
}

sub filled
{
	my ($self, $case, $text) = @_;
	$text =~ s/\{(\w+)\}/defined $case->{at}{$1} ? "to_timestamp($case->{at}{$1})" : $self->pid_of($case, $1)/ge;
	return $text;
}

sub pid_of
{
	my ($self, $case, $who) = @_;
	return $case->{actor}{$who} // ($case->{session}{$who} or croak "$case->{name}: who is $who?")->pid;
}

# ---- what the history says ----

# query(sql): rows as arrays, read through psql as a user would.
sub query
{
	my ($self, $sql) = @_;
	return map { [ split /\t/, $_, -1 ] } split /\n/, $self->{node}->safe_psql('postgres', $sql, extra_params => [ '-F', "\t" ]);
}

sub read_history
{
	my ($self) = @_;
	my (%by_pid, %wait);
	my $pids = join ',', grep { defined } map { my $case = $_; (map { $_->pid } values %{ $case->{session} }), values %{ $case->{actor} } } @{ $self->{cases} };
	for my $row ($self->query(qq{
		SELECT w.wait_id, w.pid, w.mode, w.locktype, w.object, w.outcome, w.granted, extract(epoch FROM w.wait_start), extract(epoch FROM w.wait_end),
		       w.hard_blockers, w.soft_blockers, w.root_blockers, w.relation, w.page, w.tuple, w.database
		FROM lock_history.waits AS w WHERE w.pid IN ($pids) ORDER BY w.wait_start}))
	{
		my %w;
		@w{qw(id pid mode type object outcome granted start end hard_listed soft_listed root_listed relation page tuple database)} = @$row;
		$w{$_} = [ $w{$_} =~ /-?\d+/g ] for qw(hard_listed soft_listed root_listed);
		$w{edges} = [];
		$wait{ $w{id} } = \%w;
		push @{ $by_pid{ $w{pid} } }, \%w;
	}
	for my $row ($self->query(qq{
		SELECT b.wait_id, b.kind, b.blocker_pid, b.blocker_gid, extract(epoch FROM b.first_seen), extract(epoch FROM b.last_seen)
		FROM lock_history.waits AS w, lock_history.blocking_all(w.wait_id) AS b WHERE w.pid IN ($pids)}))
	{
		my %edge;
		@edge{qw(id kind pid gid from to)} = @$row;
		push @{ $wait{ $edge{id} }{edges} }, \%edge;
	}
	$self->{history} = \%by_pid;
	return;
}

# ---- judging ----

sub judge
{
	my ($self, $case) = @_;
	subtest $case->{name} => sub {
		is(join('; ', @{ $case->{trouble} }), '', 'played to its end');
		my %letter = map { $self->pid_of($case, $_) => $_ } keys %{ $case->{session} }, keys %{ $case->{actor} };
		my %had;
		for my $pid (sort { $letter{$a} cmp $letter{$b} } keys %letter)
		{
			$had{ $letter{$pid} } = $self->{history}{$pid} // [];
			$self->judge_seen($letter{$pid}, $pid, $had{ $letter{$pid} }) if !$case->{blind};
		}
		for my $expected (@{ $case->{waits} })
		{
			my $all = $had{ $expected->{who} };
			do { $self->judge_wait($case, \%letter, $expected, shift @$all); } while ($expected->{each} && @$all);
			next if !$expected->{more};
			my $rest = $had{ $expected->{who} };
			cmp_ok(sum0(map { $_->{end} - $_->{start} } @$rest), '<', 0.3 + $SLACK, "$expected->{who}: what followed was short");
			$had{ $expected->{who} } = [];
		}
		is(join("\n", map { my $who = $_; map { "$who $_->{mode} $_->{type} $_->{object}" } @{ $had{$who} } } sort keys %had), '',
			'nobody else has an episode');
		$self->judge_tree($case, \%letter, $_) for @{ $case->{trees} // [] };
		$self->judge_deadlock($case, \%letter) if $case->{deadlock};
		for my $ask (@{ $case->{ask} })
		{
			my ($what, $sql, $want) = @$ask;
			is($self->named($case, \%letter, $self->{node}->safe_psql('postgres', $self->filled($case, $sql))), $want, $what);
		}
	};
	return;
}

# Every wait that pg_locks showed, and no long one that it did not.
sub judge_seen
{
	my ($self, $who, $pid, $had) = @_;
	my %found = map { $_->{start} => $_ } @$had;
	for my $seen (sort { $a->{start} <=> $b->{start} } grep { $_->{pid} == $pid } values %{ $self->{seen} })
	{
		my $wait = delete $found{ $seen->{start} };
		next if !$wait && $seen->{last} - $seen->{first} < 2 * $PERIOD;    # may lie between two samples
		my $name = "$who: the wait for $seen->{type} that pg_locks showed";
		ok($wait && $wait->{mode} eq $seen->{mode} && $wait->{type} eq $seen->{type}, "$name began when the server says") or next;
		cmp_ok($wait->{end}, '>=', $seen->{last} - $PERIOD - $SLACK, "$name did not end before it was last seen");
		cmp_ok($wait->{end}, '<=', $seen->{gone} + $PERIOD + $SLACK, "$name ended when it was no more");
	}
	my @unseen = grep { $_->{end} - $_->{start} > 5 * $LOOK + $SLACK } values %found;
	is(join(' ', map { "$_->{type} $_->{object}" } @unseen), '', "$who: no episode that pg_locks did not show");
	return;
}

sub judge_wait
{
	my ($self, $case, $letter, $e, $w) = @_;
	my $name = "$e->{who} for $e->{on}";
	return fail("$name: no such episode") if !$w;
	my $want = join ' | ', $e->{mode}, $e->{on}, (map { "$_ $e->{$_}" } qw(hard soft root)), "$e->{end} " . ($e->{end} eq 'granted' ? 't' : 'f');
	my $is = join ' | ', $w->{mode}, $self->named($case, $letter, "$w->{type} $w->{object}"),
	  (map { "$_ " . $self->blockers($case, $letter, $w, $_, $e->{$_}) } qw(hard soft root)), "$w->{outcome} $w->{granted}";
	$is =~ s/, tuple [^|]* \|/ |/ if ($e->{row} // '') eq '*';
	is($is, $want, $name);
	is($self->row($case, $w), $e->{row} // '-', "$name: the row behind it") if $w->{type} eq 'transactionid' && ($e->{row} // '') ne '*';
	my $long = $w->{end} - $w->{start};
	my $off = $PERIOD + $SLACK + $self->late($case, $w->{start}, $w->{end});
	ok($long >= $e->{least} - $off && $long <= $e->{most} + $off,
		sprintf '%s: %.3f s, should be %s to %s, and up to %.3f off', $name, $long, $e->{least}, $e->{most}, $off);
	return;
}

# How much the machine was behind between two times: steps that came late, and
# the longest that a look at pg_locks took.
sub late
{
	my ($self, $case, $from, $to) = @_;
	my $steps = sum0(map { $_->[1] } grep { $_->[0] > $from - 0.05 && $_->[0] < $to + 0.05 } @{ $case->{late} // [] });
	my $looks = max(0, map { $_->[1] - $_->[0] - $LOOK } grep { $_->[1] > $from && $_->[0] < $to + 0.05 } @{ $self->{looks} });
	return $steps + $looks;
}

# "table (page,tuple)", "-" for none. The OID is looked up where the case was.
sub row
{
	my ($self, $case, $w) = @_;
	return '-' if join('', @{$w}{qw(relation page tuple database)}) eq '';
	my $db = $self->{node}->safe_psql('postgres', "SELECT datname FROM pg_database WHERE oid = $w->{database}") || 'postgres';
	my $name = $self->{node}->safe_psql($db, "SET search_path = $case->{schema}; SELECT $w->{relation}::regclass");
	return "$name ($w->{page},$w->{tuple})";
}

# Letters of the blockers of a kind. What came up in the hand-over, and only
# then, does not count: whether a sample falls into it is chance.
sub blockers
{
	my ($self, $case, $letter, $w, $kind, $expected) = @_;
	return '*' if $expected eq '*';
	my %gid = map { $_->{pid} => $_->{gid} } grep { $_->{gid} ne '' } @{ $w->{edges} };
	my $name = sub { defined $gid{ $_[0] } ? "'$gid{$_[0]}'" : $letter->{ $_[0] } // "?$_[0]" };
	my $since = $w->{end} - $HANDOVER - $self->late($case, $w->{end} - $HANDOVER, $w->{end});
	my $late = sub { $_[0]{from} > $w->{start} + 0.02 && $_[0]{from} > $since };
	my @edges = grep { $_->{kind} eq ($kind eq 'soft' ? 'soft' : 'hard') } @{ $w->{edges} };
	my %early = map { $_->{pid} => 1 } grep { !$late->($_) } @edges;
	my %handover = map { $_->{pid} => 1 } grep { !$early{ $_->{pid} } } @edges;
	my @listed = grep { !$handover{$_} } @{ $w->{"${kind}_listed"} };
	my $list = sub
	{
		my %is = map { $name->($_) => 1 } @_;
		my ($maybe) = $expected =~ /(\(.*\))/;
		delete @is{ $maybe =~ /\w+/g } if defined $maybe;
		return (join(' ', sort { $a cmp $b } keys %is) || '-') . (defined $maybe ? " $maybe" : '');
	};
	my $in_waits = $list->(@listed);
	return $in_waits if $kind eq 'root';

	my $in_all = $list->(map { $_->{pid} } grep { $_->{kind} eq $kind && !$late->($_) } @{ $w->{edges} });
	return $in_all eq $in_waits ? $in_all : "in waits $in_waits, in blocking_all $in_all";
}

# Texts with letters for pids, and without what differs from run to run.
sub named
{
	my ($self, $case, $letter, $text) = @_;
	$text =~ s/\b$case->{schema}\.//g;
	$text =~ s/\bpid (\d+)/"pid " . ($letter->{$1} \/\/ "?$1")/ge;
	$text =~ s/virtual transaction -?\d+\/\d+/virtual transaction X/g;
	$text =~ s/\btransaction \d+/transaction X/g;
	return $text;
}

sub judge_tree
{
	my ($self, $case, $letter, $step) = @_;
	my $pids = join ',', grep { $_ > 0 } keys %$letter;
	my @rows = map { my ($level, $pid, $gid, $kind, $cycle) = @$_;
		('.' x $level) . ($gid ne '' ? "'$gid'" : $letter->{$pid} // "?$pid") . ($kind ne '' ? " $kind" : '') . ($cycle eq 't' ? ' cycle' : '') }
	  $self->query(qq{
		WITH t AS MATERIALIZED (SELECT * FROM lock_history.blocking_tree_at(to_timestamp($step->{at})) WITH ORDINALITY)
		SELECT t.level, t.pid, t.gid, t.kind, t.in_cycle FROM t
		WHERE t.root_pid IN (SELECT r.root_pid FROM t AS r WHERE r.pid IN ($pids)) ORDER BY t.ordinality});
	is(join(', ', @rows), $step->{text}, "tree at $step->{t}");
	return;
}

# "A of A B": the victim and the members of the only deadlock of the case.
sub judge_deadlock
{
	my ($self, $case, $letter) = @_;
	my $pids = join ',', grep { $_ > 0 } keys %$letter;
	my %got;
	push @{ $got{ $_->[0] } }, $_ for $self->query("SELECT deadlock_id, pid, is_victim FROM lock_history.deadlocks WHERE deadlock_id IN (SELECT deadlock_id FROM lock_history.deadlocks WHERE pid IN ($pids))");
	my @said = map { my $members = $_;
		join(' ', sort map { $letter->{ $_->[1] } // "?$_->[1]" } grep { $_->[2] eq 't' } @$members) . ' of '
		  . join(' ', sort map { $letter->{ $_->[1] } // "?$_->[1]" } @$members) } values %got;
	is(join('; ', sort @said), $case->{deadlock}, 'deadlock: victim and members');
	return;
}

1;
