#!/bin/sh
# Prints syscall_nr.h: the numbers of the system calls from golang.org/x/sys, which takes them from the newest kernel's headers.
# Usage: syscall_nr.sh FOLDER-OF-golang.org/x/sys/unix
set -e
cat <<'HEAD'
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Made by syscall_nr.sh from golang.org/x/sys/unix; do not edit. */
#pragma once

/* Calls that only 32-bit processes have come after all others, with their own numbers. */
enum { ONLY_COMPAT = 4096 };

HEAD
# The own numbers of 32-bit processes: some by name, and for each number the call plus 1, or 0.
for arch in amd64:x86:386 arm64:arm64:arm; do
	go=${arch%%:*} rest=${arch#*:}
	target=${rest%:*} compat=${rest#*:}
	echo "#if defined(__TARGET_ARCH_$target)"
	awk -v own="$1/zsysnum_linux_$go.go" '
		$1 !~ /^SYS_/ || $2 != "=" { next }
		{ name = tolower(substr($1, 5)) }
		FILENAME == own { calls[++n] = name; number[name] = $3; next }
		{ number_of[$3] = name; if ($3 > last) last = $3 }
		!(name in number) { calls[++n] = name; number[name] = "ONLY_COMPAT + " $3 }
		name ~ /^(exit|exit_group|sigreturn|rt_sigreturn)$/ { by_name[name] = $3 }
		END {
			print "enum syscall {"
			for (i = 1; i <= n; i++)
				print "\tsyscall__" calls[i] " = " number[calls[i]] ","
			print "};"
			print "enum {"
			for (name in by_name)
				print "\tCOMPAT_NR_" name " = " by_name[name] "," | "sort"
			close("sort")
			print "\tCOMPAT_NRS = " last + 1 ","
			print "};"
			print "#define COMPAT_CALLS \\"
			for (i = 0; i <= last; i++)
				if (i in number_of)
					print "\t[" i "] = syscall__" number_of[i] " + 1, \\"
			print "\t/* no others */"
		}' "$1/zsysnum_linux_$go.go" "$1/zsysnum_linux_$compat.go"
	echo '#endif'
done
