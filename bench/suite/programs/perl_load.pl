# The workload "perl": scalars, hashes of lists, substitutions; nearly all of Perl's memory is malloc's. Fixed seed of its own; prints a checksum.
use strict;
use warnings;

my $state = 19871218;
sub random { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return ($state >> 8) % $_[0] }

my ($sum, %lists, @recent) = (0);
for my $i (1 .. 150000) {
    my $word = join '-', map { random(300) } 1 .. 3;
    push @{ $lists{ random(20000) } }, $word;
    push @recent, { number => $i, word => $word, text => 'y' x random(120) };
    if (@recent > 5000) {
        my @old = splice @recent, 0, 2500;
        $sum = ($sum * 31 + length join '', map { $_->{text} . $_->{word} } @old) & 0xffffffff;
    }
}
for my $key (sort { $a <=> $b } keys %lists) {
    my $line = join ' ', @{ $lists{$key} };
    (my $other = $line) =~ s/(\d+)-(\d+)/<$2:$1>/g;
    my @fields = split /[ <>]+/, uc $other;
    $sum = ($sum * 33 + length($other) + @fields) & 0xffffffff;
}
print "$sum ", scalar(keys %lists), "\n";
