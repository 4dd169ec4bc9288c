package bpf

import "embed"

//go:embed arm64/*.bpf.o.zst
var objects embed.FS
