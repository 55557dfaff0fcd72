#!/usr/bin/perl
# One source per fact, a check for each copy:
#   settings   defined in extension/guc.c, told in doc/settings.md
#   columns    of the views and functions in sql/parts, told in doc/views.md
#   rules      of explain() in sql/parts/63_rules.sql, told in doc/explain.md with the same words
# Prints what is missing or too much on either side and fails.
use strict;
use warnings FATAL => 'all';
use FindBin;

chdir "$FindBin::Bin/../.." or die "chdir: $!";
my $bad = 0;

sub slurp
{
	my ($name) = @_;
	open my $file, '<', $name or die "$name: $!\n";
	local $/;
	return scalar <$file>;
}

sub complain { print STDERR "check-docs: @_\n"; $bad = 1; return; }

# compare(what, {in code}, {in the document}, document)
sub compare
{
	my ($what, $code, $told, $document) = @_;
	complain("$what $_ is not in $document") for grep { !$told->{$_} } sort keys %$code;
	complain("$document has $what $_, which does not exist") for grep { !$code->{$_} } sort keys %$told;
	return;
}

sub set_of { return { map { $_ => 1 } @_ }; }

# A setting has a row of its own: | `pg_lock_history.name` | ...
my $defined = set_of(slurp('extension/guc.c') =~ /"pg_lock_history\.([a-z_]+)"/g);
my $told = set_of(slurp('doc/settings.md') =~ /^\|\s*`(?:pg_lock_history\.)?([a-z_]+)`\s*\|/mg);
compare('setting', $defined, $told, 'doc/settings.md');

# A column has a row of its own below the heading of its object:
#   ## `waits` ...
#   | `pid` | ...
# The comments beside each column in sql/parts are the list of columns.
my $sql = join "\n", map { slurp($_) } sort glob 'sql/parts/*.sql';
my %columns;
while ($sql =~ /COMMENT ON COLUMN lock_history\.(\w+)\.(\w+)/g)
{
	$columns{$1}{$2} = 1;
}

my (%views, $object);
for my $line (split /\n/, slurp('doc/views.md'))
{
	if ($line =~ /^#+\s.*?`(?:lock_history\.)?(\w+)/)
	{
		$object = $1;
	}
	elsif ($line =~ /^#+\s/)
	{
		undef $object;
	}
	elsif (defined $object && $line =~ /^\|\s*((?:`\w+`[,\s]*)+)\|/)
	{
		my $names = $1;
		$views{$object}{$_} = 1 for $names =~ /`(\w+)`/g;
	}
}

for my $name (sort keys %columns)
{
	# Internal helpers are not for readers, and say so.
	next if $sql =~ /COMMENT ON (?:VIEW|TABLE) lock_history\.$name IS\s*'[^']*internal/i;
	if (!$views{$name})
	{
		complain("doc/views.md has no heading with a table for $name") if $sql =~ /CREATE (?:OR REPLACE )?VIEW lock_history\.$name\b/;
		next;
	}
	compare("column $name.", $columns{$name}, $views{$name}, 'doc/views.md');
}

# A rule has a row of its own: | `name` | evidence | advice |
my %rules;
while ($sql =~ /^\('(\w+)', \d+,\n '((?:[^']|'')*)',\n '((?:[^']|'')*)',\n '((?:[^']|'')*)',\n '((?:[^']|'')*)'\)/mg)
{
	(my $row = "$1: $4 | $3") =~ s/''/'/g;
	$rules{$row} = 1;
}
my $book = slurp('doc/explain.md') =~ /^## The rules$(.*?)^## /ms ? $1 : '';
my $listed = set_of(map { /^\| `(\w+)` \| (.*) \| (.*) \|$/ ? "$1: $2 | $3" : () } split /\n/, $book);
complain('no rules found in sql/parts/63_rules.sql') if !%rules;
compare('rule', \%rules, $listed, 'doc/explain.md');

print "check-docs: ", scalar(keys %rules), " rules, ", scalar(keys %$defined), " settings, ", scalar(keys %columns), " objects with columns\n" if !$bad;
exit $bad;
