#!/bin/sh
# Boots the machine in this directory: arm64 CPUs with BRBE, in QEMU 11.1 or later.
#
#   ./run                 a shell; Ctrl-A X ends the machine
#   ./run -- COMMAND ...  runs a command; its output and its exit status come back
#
# before --:
#   --records N     branch records of each CPU: 8, 16, 32 or 64 (64)
#   --cpus N        how many CPUs (2)
#   --memory MIB    how much memory (1536)
#   --append WORDS  for the kernel's command line
#   --qemu-arg ARG  for QEMU; several, one after the other
#
# QEMU is $QEMU, or qemu-system-aarch64 in the PATH. A command begins in /opt/brbe, where
# branch-guest and branch-trace are. What is written in the machine is not kept. While nobody takes
# what a command prints, the machine stands still. The exit status is 141 where nobody reads it any
# more, and 255 without one of the command, as where the kernel died.
set -eu

fail() {
	printf 'run: %s\n' "$1" >&2
	exit 2
}

# Ends without an exit status of the command.
give_up() {
	printf 'run: %s\n' "$1" >&2 || :
	exit 255
}

no_room() {
	give_up "writing in ${TMPDIR:-/tmp} failed: set TMPDIR to a directory that has room for a second root.cpio.gz"
}

end_machine() {
	[ -z "$machine" ] || kill -KILL "$machine" 2>/dev/null || : # it may have ended
}

# Where QEMU did not come so far, nobody has opened these, and `cat` waits for that.
let_go() {
	for pipe in output errors; do
		[ ! -p "$scratch/$pipe" ] || : <>"$scratch/$pipe"
	done
}

here=$(cd "$(dirname "$0")" && pwd -P)
case $here in
*,*) fail "$here: QEMU takes no comma in the path of a plugin" ;;
esac
qemu=${QEMU:-qemu-system-aarch64}
command -v "$qemu" >/dev/null || fail "there is no $qemu: install QEMU 11.1, or set QEMU to its path"
records=64 cpus=2 memory=1536 append=''
scratch=$(mktemp -d) || no_room
machine=
trap 'end_machine; let_go; rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
printf '' >"$scratch/arguments" || no_room
while [ $# -gt 0 ]; do
	case $1 in
	--)
		shift
		break
		;;
	-h | --help)
		sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"
		exit 0
		;;
	--records | --cpus | --memory | --append | --qemu-arg)
		[ $# -ge 2 ] || fail "$1 needs a value"
		;;
	*) fail "$1: no such option; ./run --help lists them" ;;
	esac
	case $1 in
	--records) records=$2 ;;
	--cpus) cpus=$2 ;;
	--memory) memory=$2 ;;
	--append) append="$append $2" ;;
	--qemu-arg) printf '%s\n' "$2" >>"$scratch/arguments" || no_room ;;
	esac
	shift 2
done

# One file of an initramfs (cpio, newc): its name there, and the file.
entry() {
	size=$(wc -c <"$2")
	length=$((${#1} + 1))
	printf '070701'
	printf '%08x' 0 0100644 0 0 1 0 "$size" 0 0 0 0 "$length" 0
	printf '%s\0' "$1"
	pad $((110 + length))
	cat "$2"
	pad "$size"
}

# Zeros up to a multiple of four bytes.
pad() {
	zeros=$((-$1 & 3))
	while [ "$zeros" -gt 0 ]; do
		printf '\0'
		zeros=$((zeros - 1))
	done
}

# The root with the command "$@" behind it.
pack() {
	for word in "$@"; do printf '%s\0' "$word"; done >"$scratch/command"
	cat "$here/root.cpio.gz"
	pad "$(wc -c <"$here/root.cpio.gz")"
	entry command "$scratch/command"
	entry 'TRAILER!!!' /dev/null
}

# Passes on what the command prints into the FIFO $1. Where nobody takes it, the script is told.
pass() {
	cat "$scratch/$1" || {
		[ $? = 141 ] && why=unread || why=unwritten
		printf '' >"$scratch/$why" || :
		kill -USR1 $$ 2>/dev/null || : # it may have ended
	}
}

initramfs=$here/root.cpio.gz
has_command=
if [ $# -gt 0 ]; then
	has_command=yes
	initramfs=$scratch/initramfs
	# `set -e` does not hold in what comes before ||.
	set +e
	(set -e; pack "$@") >"$initramfs"
	[ $? = 0 ] || no_room
	set -e
fi

set -- -nodefaults -no-reboot -display none
set -- "$@" -machine virt,gic-version=3 -cpu max -smp "$cpus" -m "${memory}M"
set -- "$@" -plugin "$here/libqemu_brbe.so,records=$records"
set -- "$@" -kernel "$here/Image" -initrd "$initramfs"
while IFS= read -r word; do set -- "$@" "$word"; done <"$scratch/arguments"
words="console=ttyAMA0 panic=-1 kpti=off$append"

if [ -z "$has_command" ]; then
	"$qemu" "$@" -append "$words quiet" -serial mon:stdio
	exit
fi
mkfifo "$scratch/output" "$scratch/errors" || no_room
trap end_machine USR1
pass output &
output=$!
pass errors >&2 &
errors=$!
set -- "$@" -device virtio-serial-pci
for port in output errors; do
	# QEMU writes a chardev's log as a whole before it goes on, whatever else the chardev is. A pipe
	# as the chardev itself has it keep for later what does not fit, and lose that at its end.
	set -- "$@" -chardev "file,id=$port,path=/dev/null,logfile=$scratch/$port"
done
set -- "$@" -chardev "file,id=status,path=$scratch/status"
for port in output errors status; do
	set -- "$@" -device "virtserialport,chardev=$port,name=org.brbe.$port"
done
# A signal is heard while the shell waits, and not while it runs a program.
"$qemu" "$@" -append "$words" -serial "file:$scratch/console" </dev/null &
machine=$!
wait "$machine" || :
machine=
trap '' USR1
let_go
wait "$output" "$errors" || :
[ ! -e "$scratch/unread" ] || exit 141
[ ! -e "$scratch/unwritten" ] || give_up 'what the command printed could not be written'
if [ -s "$scratch/status" ]; then
	status=$(cat "$scratch/status")
	exit "$status"
fi
echo 'run: the machine ended before the command did. Its console ends with:' >&2
[ ! -e "$scratch/console" ] || tail -n 30 "$scratch/console" >&2
exit 255
