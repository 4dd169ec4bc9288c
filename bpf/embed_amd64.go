package bpf

import "embed"

//go:embed amd64/*.bpf.o.zst
var objects embed.FS
