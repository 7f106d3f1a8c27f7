#!/bin/sh
# Compiles the schedulers of this folder with clang 19; the objects are kept in the repository,
# so that the tests need no compiler.
set -eu
cd "$(dirname "$0")"
CLANG=${CLANG:-clang-19}
for source in *.bpf.c; do
	"$CLANG" -O2 -g -Wall -Wno-incompatible-pointer-types -Wno-int-conversion \
		-Wno-incompatible-function-pointer-types -fdebug-compilation-dir=. \
		-target bpf -mcpu=v3 -c "$source" -o "${source%.c}.o"
	llvm-strip-19 -g "${source%.c}.o"
done
