#!/usr/bin/env bash
# Finds phrases that are not plain technical English in comments, string literals, and documents, and in the names of Swift
# code, which are read as their words: `severalCulprits_areFound` as "several culprits are found". Without arguments it checks everything that has to be clean, and fails if it finds anything. With paths, for
# example `scripts/lint-words.sh Sources/PosternStore`, it lists the findings there. A line that has to break a rule,
# for example a quotation, contains `lint:allow`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What is checked: all documents, scripts, and descriptions, and of the code these.
clean=(Package.swift Sources Tests)

if [ $# -gt 0 ]; then
    mapfile -d '' -t files < <(find "$@" -type f -print0)
else
    mapfile -d '' -t files < <(
        find . \( -name .git -o -name .build -o -name data -o -name __pycache__ \) -prune -o -type f \
            \( -name '*.md' -o -name '*.yaml' -o -name '*.yml' -o -name '*.service' -o -name Makefile \
            -o -path './scripts/*' -o -path './deploy/*' -o -path './Benchmarks/*' -o -path './.ci/*' \) -print0
        find "${clean[@]}" -type f -print0
    )
fi

perl - "${files[@]}" <<'PERL'
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

my (@rules, @nameRules);
# The phrase in each name, and what to write instead; empty if the name is good.
my %badNames;
while (my $line = <DATA>) {
    next unless $line =~ /^(\S.*?)\s{2,}(\S.*)$/;
    my ($pattern, $instead) = ($1, $2);
    # A pattern with a capital letter is case-sensitive; \W and the like are not letters.
    my $letters = $pattern =~ s/\\[A-Z]//gr;
    # What is odd only in a name.
    my $onlyInNames = $instead =~ s/^in a name: //;
    push @rules, [$letters =~ /[A-Z]/ ? qr/$pattern/ : qr/$pattern/i, $instead] unless $onlyInNames;
    push @nameRules, [qr/$pattern/i, $instead];
}

my $found = 0;
for my $file (sort @ARGV) {
    $file =~ s{^\./}{};
    # The list itself, figures that a program writes, and what is not text.
    next if $file =~ m{^(scripts/lint-words\.sh|Benchmarks/RESULTS\.md)$} or -B $file;
    open(my $in, '<', $file) or die "$file: $!\n";
    my @lines = <$in>;
    close $in;
    my $state = {};
    my $c = $file =~ /\.(swift|c|h|cc|cpp|hpp|mjs|js)$/;
    my $hasNames = $file =~ /\.swift$/;
    for my $number (1 .. @lines) {
        my $line = $lines[$number - 1];
        chomp $line;
        my ($text, $code) = $c ? prose($line, $state) : ($line =~ s/`[^`]*`/`…`/gr, '');
        next if $line =~ /lint:allow/;
        for my $name ($hasNames ? $code =~ /\b[A-Za-z_]\w*/g : ()) {
            my $bad = $badNames{$name} //= inName($name);
            next unless $bad;
            print "$file:$number: $bad\n";
            $found++;
        }
        # A sentence that begins after the mark of a comment, a list, a table or a quotation begins there.
        (my $bare = $text) =~ s{^[\s/*#>|-]+}{};
        for my $rule (@rules) {
            my ($pattern, $instead) = @$rule;
            next unless $text =~ $pattern or $bare =~ $pattern;
            print "$file:$number: \"$&\": $instead\n";
            $found++;
        }
    }
}
if ($found) {
    print STDERR "$found findings\n";
    exit 1;
}

# What is wrong with the words of a name in camel case, with or without underscores; empty if nothing is.
sub inName {
    my ($name) = @_;
    my $words = lc($name =~ s/_/ /gr =~ s/(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/ /gr);
    for my $rule (@nameRules) {
        my ($pattern, $instead) = @$rule;
        return "\"$&\" in the name $name: $instead" if $words =~ $pattern;
    }
    return '';
}

# The comments and string literals of a line of code, with blanks for everything else; and the code. `$state` goes from line
# to line.
sub prose {
    my ($line, $state) = @_;
    my ($out, $code) = ('', '');
    pos($line) = 0;
    while (pos($line) < length $line) {
        if ($state->{comment}) {
            if ($line =~ m{\G(.*?)\*/}gc) { $out .= "$1  "; $state->{comment} = 0 }
            else { $line =~ m{\G(.*)}gc; $out .= $1 }
        } elsif (defined $state->{quote}) {
            my ($quote, $hashes) = ($state->{quote}, $state->{hashes});
            if ($line =~ m{\G\Q$quote$hashes\E}gc) { $out .= ' '; $state->{quote} = undef }
            elsif ($line =~ m{\G\\\Q$hashes\E\(}gc) {
                # An interpolation: code up to its closing parenthesis.
                my $depth = 1;
                while ($depth > 0 and $line =~ m{\G([()]|[^()]+)}gc) {
                    $depth += $1 eq '(' ? 1 : $1 eq ')' ? -1 : 0;
                    $code .= " $1";
                }
                $out .= '…';
            } elsif ($line =~ m{\G(\\?.)}gc) { $out .= $1 }
        }
        elsif ($line =~ m{\G(//.*)}gc) { $out .= $1 }
        elsif ($line =~ m{\G/\*}gc) { $state->{comment} = 1; $out .= '  ' }
        elsif ($line =~ m{\G(#*)("""|")}gc) { @$state{qw(quote hashes)} = ($2, $1); $out .= ' ' }
        else { $line =~ m{\G(.)}gc; $out .= ' '; $code .= $1 }
    }
    # Only a literal with three quotation marks goes on in the next line.
    $state->{quote} = undef if defined $state->{quote} and $state->{quote} eq '"';
    return ($out, $code);
}

__END__
\banew\b                                                    again, or re-created, re-read, re-sent
\bmend(s|ed|ing)?\b                                         fix, correct, repair
(?<!here )\b(is|are|was|were) no (valid|whole|decimal|number|text|string|array|object|list|file|name|kind|gzip|JSON|HTTP|UTF-8|UUID|member|fault|failure|path|type|command|letters|lists|lower-case|percent-encoded|Bearer)\b   is not a
\b(that|which) (is|are) none\b                              name the thing: "an invalid escape"
\b(is|are|was|were|kept|claims?|takes?|sends?) no more\b(?! than)   no longer
^\s*///?\s+(Is|Are|Was|Does|Do|Did|Has|Have|May|Can) [^.;:]*\?      "Whether …"
, be (it|they) \w                                           including, even if, whether … or
(^|[.;:]\s+)Should (it|they|one|the \w+|an? \w+) (?!.*\?)   "If …"
(?<!=)\b(some|no|any)body\b|\bwhoever\b                     the caller, a thread, the upstream
\bwish(es|ed)?\b|\bto be had\b|\bof (no|any) use\b          request; available; no longer needed
\b(came|comes|come) (of|to nothing)\b                       result of, outcome of; failed
\bput aside\b|\bturn(s|ed)? (down|away)\b|\blet(s|ting)? go of\b    suspend; reject; release
\b(a|no|its own) word (of|for|about|on)\b|\bwithout a word\b        one verdict per; says nothing about; silently
\bculprits?\b|\bconvict\w*                                  poison message; mark as failed
\bwherever\b|\bhas its own word\b                           in a name: at any position, with its own verdict
\bseldom\b|\bfor ever\b|\bin the midst\b|\bat the most\b    rarely; forever; in the middle; at most
\bfor good\b|\bagain and again\b|\bin good order\b     permanently; repeatedly; in an orderly way
; answers (its|the|how|what|whether|whose)\b|\bfor short\b|\blent\b     "Returns …"; abbreviated; passed
\bbeside\b                                                  next to, in addition to, while … is running
\bstands? (?!for\b|alone\b|by\b|still\b|in for\b|up\b|out\b|on its own\b)[a-z]   is, is stored, is written
PERL
