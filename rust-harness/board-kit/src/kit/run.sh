#!/bin/sh
# Finds out how the branch records (BRBE) of this machine are, and writes it into one file.
#
#   sh run.sh [--within SECONDS] [FILE]
#
# FILE is brbe-board.json in the current directory unless it is named. The kit needs no network and
# takes a few minutes, ten at the most; with --within, it begins nothing after that time. As root it
# finds out everything; without, it says what it could not. It can be run from a directory that nothing
# can be written to or run from. What it makes in a temporary directory it removes; settings that it
# changes it sets back.
set -u

fail() {
	printf 'run.sh: %s\n' "$1" >&2
	exit 2
}

within=480
case ${1-} in
-h | --help)
	sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
	exit 0
	;;
--within)
	[ $# -ge 2 ] || fail "--within needs a number of seconds"
	within=$2
	shift 2
	;;
-*) fail "$1: no such option; sh run.sh --help lists them" ;;
esac
[ $# -le 1 ] || fail "one file at the most: sh run.sh --help"
file=${1:-brbe-board.json}
arch=$(uname -m)
[ "$arch" = aarch64 ] || fail "the kit is for arm64 (aarch64), and this machine is $arch"
here=$(cd "$(dirname "$0")" && pwd -P) || fail "cannot find the kit's directory"

dir='' child=''
end() {
	status=$?
	trap - EXIT
	# A second Ctrl-C does not hinder it.
	trap '' HUP INT QUIT TERM
	[ -z "$child" ] || kill "$child" 2>/dev/null
	[ -z "$child" ] || wait "$child" 2>/dev/null
	[ -z "$dir" ] || rm -rf "$dir"
	rm -f "$file.partial"
	exit "$status"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 131' QUIT
trap 'exit 143' TERM HUP

# A directory that programs can be run from. A stick is often mounted so that none can.
for place in "${TMPDIR:-/tmp}" /var/tmp /run /dev/shm "${HOME:-/root}"; do
	dir=$(mktemp -d "$place/brbe.XXXXXX" 2>/dev/null) || {
		dir=''
		continue
	}
	if cp "$here/branch-guest" "$dir/" 2>/dev/null && chmod 755 "$dir/branch-guest" &&
		"$dir/branch-guest" --version >/dev/null 2>&1; then
		break
	fi
	rm -rf "$dir"
	dir=''
done
[ -n "$dir" ] || fail "there is no directory that programs can be run from, with 5 MB of room: name one by TMPDIR"

# Root writes to no device, and through no link that somebody else may have left there.
if [ -L "$file" ] || { [ -e "$file" ] && [ ! -f "$file" ]; }; then
	fail "$file is there and is no file: name another, sh run.sh FILE"
fi
(: >>"$file") 2>/dev/null || fail "cannot write $file: name another, sh run.sh FILE"
case $file in
/*) ;;
*) file=$(pwd -P)/$file ;;
esac

"$dir/branch-guest" board --kit "$here/kit.json" --output "$file" --within "$within" &
child=$!
wait "$child"
status=$?
child=''
exit "$status"
