#!/bin/sh -e
# Makes the fixtures anew: with symbols and line numbers; without, but with .gnu_debugdata; without, but with a link to tiny.debug;
# without any. Debian 12's gcc and binutils; amd64.
g++ -O0 -g -gdwarf-5 -fno-omit-frame-pointer -ffile-prefix-map="$PWD"=. -fno-asynchronous-unwind-tables -nostdlib -static -Wl,--build-id=sha1 -Wl,-z,noseparate-code -o tiny tiny.cc
objcopy --only-keep-debug tiny tiny.debug
nm -n tiny | awk '$2 ~ /[tT]/ { print $3 }' > keep
objcopy -S --remove-section=.comment --keep-symbols=keep tiny.debug tiny.mini
xz -k -f tiny.mini
objcopy --strip-all --add-section .gnu_debugdata=tiny.mini.xz tiny tiny.minidebug
objcopy --strip-all --add-gnu-debuglink=tiny.debug tiny tiny.linked
objcopy --strip-all tiny tiny.stripped
rm -f keep tiny.mini tiny.mini.xz
