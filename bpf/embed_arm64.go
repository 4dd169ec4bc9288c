package bpf

import "embed"

//go:embed arm64/*.bpf.o
var objects embed.FS
