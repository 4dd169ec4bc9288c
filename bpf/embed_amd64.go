package bpf

import "embed"

//go:embed amd64/*.bpf.o
var objects embed.FS
