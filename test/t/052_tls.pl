# A history on another server by TLS: what conninfo says of certificates holds, and
# what does not fit is one clear message.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../perl";
use LockHistory;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no openssl to make certificates with' if system('openssl version >/dev/null 2>&1') != 0;

my $dir = PostgreSQL::Test::Utils::tempdir();
sub write_to { my ($path, $text) = @_; open my $file, '>', $path or die "$path: $!"; print $file $text; close $file; chmod 0600, $path; return; }
sub openssl { my @args = @_; system_or_bail('openssl', @args); return; }

# authority(name): one that signs; sign(authority, name, subject, more).
sub authority
{
	my ($name) = @_;
	openssl(qw(req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj), "/CN=$name", '-keyout', "$dir/$name.key", '-out', "$dir/$name.crt");
	return;
}
sub sign
{
	my ($authority, $name, $subject, $more) = @_;
	openssl(qw(req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj), $subject, '-keyout', "$dir/$name.key", '-out', "$dir/$name.csr");
	write_to("$dir/$name.ext", $more // "basicConstraints=CA:FALSE\n");
	openssl(qw(x509 -req -days 2 -CAcreateserial -in), "$dir/$name.csr", '-CA', "$dir/$authority.crt", '-CAkey', "$dir/$authority.key", '-extfile', "$dir/$name.ext", '-out', "$dir/$name.crt");
	chmod 0600, "$dir/$name.key";
	return;
}
authority($_) for qw(ours another);
sign('ours', 'server', '/CN=history', "subjectAltName=IP:127.0.0.1\n");
sign('ours', 'fleet', '/CN=fleet');

my $archive = LockHistory::cluster('archive', settings => "listen_addresses = '127.0.0.1'\nssl = on\nssl_cert_file = '$dir/server.crt'\nssl_key_file = '$dir/server.key'\nssl_ca_file = '$dir/ours.crt'");
$archive->safe_psql('postgres', q{CREATE ROLE fleet LOGIN; SELECT lock_history.grant_writer('fleet')});
my $hba = slurp_file($archive->data_dir . '/pg_hba.conf');
write_to($archive->data_dir . '/pg_hba.conf', "hostssl all fleet 127.0.0.1/32 cert\nhost all fleet 127.0.0.1/32 reject\n$hba");
$archive->reload;

my $port = $archive->port;
my $east = LockHistory::cluster('east', start => 0, settings => "pg_lock_history.node_name = 'east'\n");
my $conf = slurp_file($east->data_dir . '/postgresql.conf');
sub configure
{
	my ($conninfo) = @_;
	write_to($east->data_dir . '/postgresql.conf', "$conf\npg_lock_history.conninfo = '$conninfo'\n");
	$east->reload if -e $east->data_dir . '/postmaster.pid';
	return;
}
my $way = "host=127.0.0.1 port=$port dbname=postgres user=fleet sslcert=$dir/fleet.crt sslkey=$dir/fleet.key";
my $full = "$way sslmode=verify-full sslrootcert=$dir/ours.crt";
configure($full);
$east->start;
$east->safe_psql('postgres', 'CREATE EXTENSION pg_lock_history');
sub is_written
{
	my ($name) = @_;
	LockHistory::wait_until_recording($east);
	LockHistory::flush($east);
	is($archive->safe_psql('postgres', q{SELECT s.ssl, s.client_dn FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a ON a.pid = s.pid AND a.usename = 'fleet'}), 't|/CN=fleet', "$name: written by TLS");
	return;
}
is_written('verify-full');

# [name, conninfo, text in the log, hint]
for my $case (
	[ 'verify-full, another authority', "$way sslmode=verify-full sslrootcert=$dir/another.crt", qr/the certificate of the server that keeps the history is not accepted/, qr/sslrootcert/ ],
	[ 'verify-full, another name', $full =~ s/127\.0\.0\.1/localhost/r, qr/the certificate of the server that keeps the history is not accepted/, qr/name in host/ ],
	[ 'verify-ca, another authority', "$way sslmode=verify-ca sslrootcert=$dir/another.crt", qr/the certificate of the server that keeps the history is not accepted/, qr/sslrootcert/ ],
	[ 'no TLS', "$way sslmode=disable", qr/the server does not let the writer in/, qr/pg_hba\.conf on host 127\.0\.0\.1 port $port/ ],
	[ 'no client certificate', "host=127.0.0.1 port=$port dbname=postgres user=fleet sslmode=verify-full sslrootcert=$dir/ours.crt", qr/the server does not let the writer in/, qr/sslmode/ ],
	[ 'no such root certificate', "$way sslmode=verify-full sslrootcert=$dir/none.crt", qr/pg_lock_history\.conninfo cannot be used/, qr/keywords/ ],
	[ 'a revocation list', "$full sslcrl=$dir/none.crl", qr/pg_lock_history\.conninfo cannot be used/, qr/keywords/ ])
{
	my ($name, $conninfo, $text, $hint) = @$case;
	my $offset = LockHistory::log_end($east);
	configure($conninfo);
	LockHistory::wait_until_status($east, 'state', 'cannot connect');
	like(LockHistory::status($east, 'hint'), $hint, "$name: the way out");
	my @told = grep { !/over, after/ } LockHistory::log_since($east, $offset) =~ /^(.*pg_lock_history: .*)$/mg;
	ok(@told == 1 && $told[0] =~ $text, "$name: told once") or diag join "\n", @told;
	is($archive->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'fleet'}), '0', "$name: nobody got in");
}
configure($full =~ s/127\.0\.0\.1/localhost/r =~ s/verify-full/verify-ca/r);
is_written('verify-ca does not look at the name');

$east->stop;
$archive->stop;
done_testing();
