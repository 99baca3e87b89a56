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
trap "exit 129" HUP INT TERM PIPE
cd "$dir" && head -c "$1" | tar -xf - || exit 1

# When the connection ends, so does its input.
exec 3<&0
(while read -r line; do :; done; kill -s TERM $$) <&3 >/dev/null 2>&1 &
watch=$!

touch .brbe-started
setsid sh .brbe-command </dev/null 2>&1 3<&- &
command=$!
wait "$command"
status=$?
printf "\n%s %s\n" "$2" "$status"
set --
for file in *; do
	[ ! -f "$file" ] || [ ! "$file" -nt .brbe-started ] || set -- "$@" "$file"
done
[ $# = 0 ] || tar -cf - -- "$@"
