#!/bin/sh
# Prints syscall_nr.h: the numbers of the system calls from golang.org/x/sys, which takes them from the newest kernel's headers.
# Usage: syscall_nr.sh FOLDER-OF-golang.org/x/sys/unix
set -e
cat <<'HEAD'
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Made by syscall_nr.sh from golang.org/x/sys/unix; do not edit. */
#pragma once

HEAD
for arch in amd64:x86 arm64:arm64; do
	echo "#if defined(__TARGET_ARCH_${arch#*:})"
	echo 'enum syscall {'
	awk '$1 ~ /^SYS_/ && $2 == "=" { print "\tsyscall__" tolower(substr($1, 5)) " = " $3 "," }' \
		"$1/zsysnum_linux_${arch%:*}.go"
	echo '};'
	echo '#endif'
done
