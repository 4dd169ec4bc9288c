package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"trace/lang/codegen/bpftest"
	"trace/lang/metrics/family"
	"trace/lang/serve"
	"trace/lang/serve/wire"
)

// docs/metrics.md and docs/service.md name every metric that a service shows of itself, with its kind.
func TestMetricsAreDocumented(t *testing.T) {
	if err := bpftest.Permitted(); err != nil {
		t.Skipf("needs CAP_BPF and CAP_PERFMON: %v", err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "trace.yaml")
	if err := os.WriteFile(file, []byte("programs: [{name: calls, program: 'let @n = hash(1); syscall:enter { @n[nr] = count() }'}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	loader, err := serve.New(t.Context(), serve.Options{Config: file, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer loader.Close()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { loader.Run(ctx) })
	over.Go(func() { wire.Serve(ctx, l, wire.Anyone, loader) })
	defer over.Wait()
	defer end()
	s := newServer(wire.Client{Path: l.Addr().String()}, wire.Settings{OTLP: &wire.OTLP{}})
	s.exporter = newExporter(s, slog.New(slog.DiscardHandler))
	var all []family.Family
	for range 500 {
		if all, err = s.families(t.Context()); err == nil && slices.ContainsFunc(all, func(f family.Family) bool { return f.Name == "trace_map_lost_updates_total" }) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	var documented []byte
	for _, name := range []string{"metrics", "service"} {
		text, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		documented = append(documented, text...)
	}
	kinds := map[family.Kind]string{family.Counter: "counter", family.Gauge: "gauge"}
	for _, f := range all {
		row := fmt.Sprintf("| `%s` | %s |", f.Name, kinds[f.Kind])
		if !strings.HasPrefix(f.Name, "trace_calls_") && !strings.Contains(string(documented), row) {
			t.Errorf("no document has %s %v %s", row, f.Labels, f.Help)
		}
	}
}
