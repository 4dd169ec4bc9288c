#!/bin/sh
# Removes from an object what no loader needs: sh strip.sh STRIP OBJCOPY OBJECT
# - relocations of BTF, which are for linkers;
# - labels of basic blocks;
# - records of lines in .BTF.ext, one for each statement. The kernel wants one at the beginning of each function: these stay.
# Together they are a third of an object.
set -eu
strip=$1 objcopy=$2 object=$3
ext=$object.ext
trap 'rm -f "$ext" "$ext.new"' EXIT

"$strip" -g -R .rel.BTF -R .rel.BTF.ext "$object"
"$objcopy" -w --strip-symbol 'LBB*' --dump-section ".BTF.ext=$ext" "$object"

# .BTF.ext in words of 4 bytes; objects are little-endian, as the machine that compiles them has to be. struct btf_ext_header
# (tools/lib/bpf/libbpf_internal.h): magic, hdr_len, then offset behind the header and length of func_info, line_info and core_relo.
# These begin with the size of a record. A section of func_info and line_info has its name, the number of its records, and the records.
od -An -v -t u4 -w4 "$ext" | awk '
	{ word[NR - 1] = $1 }
	function keep(w) { kept[n++] = w }
	END {
		header = word[1] / 4
		for (i = header + word[2] / 4 + 1; i < header + (word[2] + word[3]) / 4; ) {
			name = word[i]; records = word[i + 1]
			for (i += 2; records-- > 0; i += 2) begins[name, word[i]] = 1
		}
		first = header + word[4] / 4
		keep(word[first])
		for (i = first + 1; i < first + word[5] / 4; ) {
			name = word[i]; records = word[i + 1]
			keep(name); count = n; keep(0)
			for (i += 2; records-- > 0; i += 4)
				if ((name, word[i]) in begins) {
					for (j = 0; j < 4; j++) keep(word[i + j])
					kept[count]++
				}
		}
		word[6] -= word[5] - n * 4
		end = first + word[5] / 4
		word[5] = n * 4
		for (i = 0; i < first; i++) put(word[i])
		for (i = 0; i < n; i++) put(kept[i])
		for (i = end; i < NR; i++) put(word[i])
	}
	function put(w,  b) {
		for (b = 0; b < 4; b++) { printf "\\%03o", w % 256; w = int(w / 256) }
		print ""
	}' | while read -r octal; do printf "$octal"; done >"$ext.new"
"$objcopy" --update-section ".BTF.ext=$ext.new" "$object"
