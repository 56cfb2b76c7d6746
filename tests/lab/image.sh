#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# image.sh SUITE VARIANT DIR: build the lab's root file system, kernel and initramfs into DIR.
#
# DIR/root       the chroot; the project is compiled in it
# DIR/root.ext4  the same tree as a disk, shared read-only by all guests
# DIR/vmlinux, DIR/initrd, DIR/kernel (its release)
# DIR/inputs     hash of what the image was made from, written last

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
suite=$1
variant=$2
dir=$3
root=$dir/root

say() { printf '[image] %s\n' "$*" >&2; }

# The mirror this machine itself installs from; no name of a mirror is written down anywhere.
debian_mirror() {
	apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
		'Created-By: Packages' |
		awk '$3 == "main" && $2 !~ /-/ && $1 ~ /debian\/?$/ { print $1; exit }'
}

packages() {
	awk -v v="$variant" '!/^#/ && NF == 2 && ($1 == "base" || $1 == v) { print $2 }' \
		"$here/packages.list"
}

# Everything below runs in a mount namespace of its own, so that no mount outlives a failure.
in_root() {
	unshare --mount --pid --fork --kill-child -- sh -c '
		root=$1; shift
		mount -t proc proc "$root/proc"
		mount --bind /dev "$root/dev"
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			DEBIAN_FRONTEND=noninteractive LC_ALL=C HOME=/root "$@"' sh "$root" "$@"
}

mirror=${LAB_MIRROR:-$(debian_mirror)}
[[ -n $mirror ]] || { say "no Debian mirror in apt's configuration; set LAB_MIRROR"; exit 1; }

rm -rf "$dir"
mkdir -p "$dir"

say "debootstrap $suite"
debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" "$mirror" \
	>"$dir/debootstrap.log" 2>&1 || { tail -5 "$dir/debootstrap.log" >&2; exit 1; }

mkdir -p "$root/etc/dpkg/dpkg.cfg.d" "$root/etc/apt/apt.conf.d"
cat >"$root/etc/dpkg/dpkg.cfg.d/lab" <<-'END'
	force-unsafe-io
	path-exclude=/usr/share/doc/*
	path-exclude=/usr/share/man/*
	path-exclude=/usr/share/info/*
	path-exclude=/usr/share/locale/*
END
cat >"$root/etc/apt/apt.conf.d/90lab" <<-'END'
	APT::Install-Recommends "false";
	Acquire::Languages "none";
	Acquire::Retries "3";
END
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
for f in /etc/resolv.conf /etc/apt/apt.conf.d/*proxy*; do
	[[ -e $f ]] && install -D -m 644 "$f" "$root$f"
done

say "packages ($variant)"
mapfile -t pkgs < <(packages)
in_root sh -ec '
	apt-get -q update
	apt-get -q -y install "$@"
	apt-get clean' sh "${pkgs[@]}" \
	>"$dir/apt.log" 2>&1 || { tail -20 "$dir/apt.log" >&2; exit 1; }

# The kernel is unpacked, not installed: its scripts would build an initramfs of their own.
say "kernel"
in_root sh -ec '
	cd /tmp
	pkg=$(apt-cache depends linux-image-amd64 | sed -n "s/^ *Depends: \(linux-image-[0-9].*\)/\1/p" | head -1)
	apt-get -q download "$pkg"
	dpkg-deb -x "$pkg"_*.deb /tmp/kernel
	cp -a /tmp/kernel/boot/vmlinuz-* /boot/
	if [ -d /tmp/kernel/usr/lib/modules ]; then
		cp -a /tmp/kernel/usr/lib/modules /usr/lib/
	else
		cp -a /tmp/kernel/lib/modules /usr/lib/
	fi
	rm -rf /tmp/kernel "$pkg"_*.deb' >>"$dir/apt.log" 2>&1 ||
	{ tail -20 "$dir/apt.log" >&2; exit 1; }
kernel=$(ls "$root/usr/lib/modules")

# QEMU starts the unpacked kernel at its PVH entry: that spares a guest without KVM several seconds
# of decompression. Where that does not work out, the kernel stays as it is.
vmlinux_unpack() {
	local from=$1 magic tool at
	while read -r magic tool; do
		at=$(LC_ALL=C grep -abo -m 1 -P "$magic" "$from" | head -n 1 | cut -d: -f1 || true)
		[[ -n $at ]] || continue
		tail -c "+$((at + 1))" "$from" | $tool -dc >"$dir/vmlinux" 2>/dev/null || true
		readelf -n "$dir/vmlinux" 2>/dev/null | grep -q '(0x00000012)' && return 0
	done <<-'END'
		\xFD7zXZ\x00 xz
		\x28\xB5\x2F\xFD zstd
	END
	say "this kernel has no PVH entry: guests decompress it"
	cp "$from" "$dir/vmlinux"
}
vmlinux_unpack "$root/boot/vmlinuz-$kernel"
rm -rf "${root:?}"/boot/*

# A guest has few devices. Signatures are checked in software at each load: strip them.
say "modules"
(
	cd "$root/usr/lib/modules/$kernel/kernel"
	rm -rf sound arch/x86/kvm drivers/{gpu,media,usb,scsi,staging,hid,input,iio,hwmon,mtd,platform,mmc,isdn,ata,md,target,video,nvme,bluetooth,comedi,infiniband/hw} \
		drivers/net/{ethernet,wireless,usb,phy,can,fddi,wwan,hamradio,arcnet,ieee802154} \
		fs/{btrfs,xfs,ocfs2,gfs2,reiserfs,jfs,f2fs,ceph,nfs,nfsd,smb,cifs,ksmbd,afs,ubifs,jffs2,nilfs2,udf,ntfs3,bcachefs} \
		net/{bluetooth,wireless,mac80211,can,ceph,nfc,openvswitch,batman-adv,mac802154,ieee802154,tipc,rxrpc}
	find . -name '*.ko.xz' -exec xz -d {} +
	find . -name '*.ko.zst' -exec zstd -q -d --rm {} +
	find . -name '*.ko' -exec strip --strip-debug {} +
)
in_root depmod "$kernel"

printf '%s\n' "$kernel" >"$dir/kernel"

# Slurm's PMIx plugin opens libpmix.so by name in this folder.
in_root sh -c 'ls /usr/lib/x86_64-linux-gnu/pmix*/lib/libpmix.so' >/dev/null ||
	{ say "no libpmix.so for Slurm's PMIx plugin in this suite"; exit 1; }

say "user, folders"
in_root sh -ec '
	useradd --uid 1000 --create-home --shell /bin/bash lab
	rm -f /etc/machine-id /etc/hostname /etc/resolv.conf
	rm -rf /usr/share/doc /usr/share/man /usr/share/locale /var/lib/apt/lists/*
	mkdir -p /etc/slurm/plugstack.conf.d /var/spool/slurmd /var/spool/slurmctld /lab
	echo 0123456789abcdef0123456789abcdef >/etc/machine-id'

say "initramfs"
init=$dir/initramfs
mkdir -p "$init"/{bin,dev,proc,sys,lower,upper,root,modules}
cp "$root/bin/busybox" "$init/bin/busybox"
cp "$here/guest/initramfs-init" "$init/init"
chmod 755 "$init/init"
# modprobe knows the order (virtio_ring before virtio); what is built in needs no line.
while read -r f; do
	cp "$root$f" "$init/modules/"
	printf '%s\n' "${f##*/}" >>"$init/modules/order"
done < <(for m in virtio_pci virtio_blk crc32c_generic ext4 overlay; do
	in_root modprobe -S "$kernel" --show-depends "$m"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }')
(cd "$init" && find . | cpio --quiet -o -H newc) >"$dir/initrd"

say "disk"
size=$(du -sm --apparent-size "$root" | cut -f1)
rm -f "$dir/root.ext4"
mke2fs -q -t ext4 -O ^has_journal,^resize_inode,^metadata_csum,^64bit -m 0 -i 8192 -E lazy_itable_init=1 \
	-d "$root" "$dir/root.ext4" "$((size * 115 / 100 + 200))M"

"$here/lab" image-inputs "$suite" "$variant" >"$dir/inputs"
say "done: $(du -sh "$dir/root.ext4" | cut -f1)"
