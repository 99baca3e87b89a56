# $1: bytes of the program on standard input. $2: bytes of the archive that follows.
umask 077
dir=$(mktemp -d "${TMPDIR:-/tmp}/brbe.XXXXXXXX") || exit 1
trap "rm -rf -- \"\$dir\"" EXIT
# Not by the trap above: what interrupts a shell where that begins keeps it from running it.
trap "rm -rf -- \"\$dir\"; exit 129" HUP INT TERM PIPE
# Hidden: it is not for the command, and does not go back as a new file.
program=$dir/.guest-runner
head -c "$1" >"$program" && [ "$(wc -c <"$program")" -eq "$1" ] && chmod 700 "$program" &&
	"$program" over-ssh "$dir" "$2"
