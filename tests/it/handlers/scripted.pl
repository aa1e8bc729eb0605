#!/usr/bin/perl
# An Exec handler that does with each entry what the entry's field `do` says, and keeps a journal of it.
#
#   scripted.pl DIRECTORY DEFAULT
#
# `do` is a list of steps between `;`, or several such lists between `|`, one for each attempt (the last one stays).
# Without that field, DEFAULT is done. Perl, because one process starts in 2 ms and a test has up to 48 of them.
#
#   rand:MS sleep:MS   wait (at random up to, or exactly)
#   gate:FILE          wait until DIRECTORY/FILE exists
#   skip:FILE          if DIRECTORY/FILE exists, answer `ok` at once
#   exit:CODE          die with the entry in hand
#   slay               kill the worker with its whole process group
#   junk               print a line that is no answer
#   error:TYPE reject:TYPE busy:SECONDS   answer that it failed, is wrong, has to wait
#   emit               answer `ok` with one output that carries the field `key`
#   ok                 answer `ok` (also what the end of the list does)
#
# One line of DIRECTORY/journal per start and per answer: time (ms), what, key, id, attempt, deliveries, pid, worker.
use strict;
use warnings;
use Time::HiRes ();

my ( $directory, $default ) = @ARGV;
my $worker = getppid();
open( my $journal, '>>', "$directory/journal" ) or die "journal: $!";
$| = 1;

sub text {
    my ( $line, $name ) = @_;
    return $line =~ /"$name":\s*"((?:[^"\\]|\\.)*)"/ ? $1 : undef;
}

sub number {
    my ( $line, $name ) = @_;
    return $line =~ /"$name":\s*(\d+)/ ? $1 : 0;
}

# An orphan stops instead of answering nobody: what its worker held belongs to others.
sub pause {
    my ($seconds) = @_;
    my $until = Time::HiRes::time() + $seconds;
    while ( ( my $left = $until - Time::HiRes::time() ) > 0 ) {
        select( undef, undef, undef, $left < 0.2 ? $left : 0.2 );
        exit 9 if getppid() != $worker;
    }
}

sub slay {
    kill 'KILL', -getpgrp($worker), $worker, $$;
}

while ( my $line = <STDIN> ) {
    my ( $head, $fields ) = $line =~ /^(.*?)"fields":\s*(\{.*)$/s ? ( $1, $2 ) : ( $line, '' );
    # Redis may deliver the fields before the rest; the engine's own names never collide with `key` and `do`.
    my $id = text( $line, 'id' ) // '-';
    my $key = text( $fields, 'key' ) // '-';
    my ( $attempt, $deliveries ) = ( number( $line, 'attempt' ), number( $line, 'deliveries' ) );
    my $note = sub {
        my $time = int( Time::HiRes::time() * 1000 );
        syswrite( $journal, "$time $_[0] $key $id $attempt $deliveries $$ $worker\n" );
    };
    my $answer = sub {
        my ( $what, $rest ) = @_;
        $note->($what);
        print qq({"id":"$id",$rest}\n);
    };
    my $failed = sub {
        my ( $what, $type, $more ) = @_;
        $answer->( $what, qq("error":{"type":"$type","message":"as the entry asked"$more}) );
    };

    $note->('start');
    my @lists = split /\|/, text( $fields, 'do' ) // $default;
    my $list  = $lists[ $attempt > @lists ? -1 : ( $attempt || 1 ) - 1 ];
    my $answered = 0;
    for my $step ( split /;/, $list ) {
        my ( $verb, $value ) = split /:/, $step, 2;
        if    ( $verb eq 'rand' )  { select( undef, undef, undef, rand($value) / 1000 ) }
        elsif ( $verb eq 'sleep' ) { pause( $value / 1000 ) }
        elsif ( $verb eq 'gate' )  { pause(0.02) until -e "$directory/$value" }
        elsif ( $verb eq 'exit' )  { exit $value }
        elsif ( $verb eq 'slay' )  { slay() }
        elsif ( $verb eq 'skip' )  { last if -e "$directory/$value" }
        else {
            $answered = 1;
            if    ( $verb eq 'ok' )     { $answer->( 'ok', '"ok":true' ) }
            elsif ( $verb eq 'emit' )   { $answer->( 'ok', qq("ok":true,"outputs":[{"key":"$key"}]) ) }
            elsif ( $verb eq 'error' )  { $failed->( 'error', $value, '' ) }
            elsif ( $verb eq 'reject' ) { $failed->( 'reject', $value, ',"retryable":false' ) }
            elsif ( $verb eq 'busy' )   { $failed->( 'busy', 'Busy', qq(,"retryAfter":$value) ) }
            elsif ( $verb eq 'junk' )   { print "this is no answer\n" }
            else                        { die "no such step: $step" }
            last;
        }
    }
    $answer->( 'ok', '"ok":true' ) unless $answered;
}
