# $1: bytes of the archive on standard input. $2: the mark.
umask 077
dir=$(mktemp -d "${TMPDIR:-/tmp}/brbe.XXXXXXXX") || exit 1
command= watch=
clean() {
	trap : HUP INT TERM PIPE
	[ -z "$watch" ] || kill "$watch"
	[ -z "$command" ] || kill -s KILL -- "-$command"
	cd / && rm -rf -- "$dir"
} 2>/dev/null
trap clean EXIT
# Not by the trap above: what interrupts a shell where that begins keeps it from running it.
trap "clean; exit 129" HUP INT TERM PIPE
cd "$dir" && head -c "$1" | tar -xf - || exit 1

exec 3<&0
setsid sh .brbe-command </dev/null 2>&1 3<&- &
command=$!
# Each line is a Ctrl-C for the command. When the connection ends, so does its input.
(while read -r line; do kill -s INT -- "-$command"; done; kill -s TERM $$) <&3 >/dev/null 2>&1 &
watch=$!
wait "$command"
status=$?
printf "\n%s %s\n" "$2" "$status"
# All that was unpacked has one date of long ago, and .brbe-command too: what has another
# is new, however short the command was and whatever the clock says. busybox compares
# whole seconds.
set --
for file in *; do
	[ -f "$file" ] || continue
	[ ! "$file" -nt .brbe-command ] && [ ! "$file" -ot .brbe-command ] || set -- "$@" "$file"
done
[ $# = 0 ] || tar -cf - -- "$@"
