package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/sys/unix"

	"trace/lang/metrics/family"
	"trace/lang/result"
	"trace/lang/serve/wire"
	"trace/probes/event"
)

// mapLoader answers with the metrics of a map.
type mapLoader struct {
	loader
	exporter *family.Exporter
	table    result.Table
}

func (m mapLoader) Answer(context.Context, wire.Request) (any, error) {
	return family.Set(m.exporter.Families(family.Snapshot{Tables: []result.Table{m.table}})), nil
}

// manySeries is how many series a scrape has.
const manySeries = 10000

// scraped starts a server, and a loader with as many series. What both do for a scrape is all that happens in it: names and bounds, the socket
// between the processes, HTTP.
func scraped(b testing.TB) (url string) {
	number := event.Type{Kind: event.Uint, Size: 8}
	table := result.Table{Name: "@calls", Func: "count", Metric: result.Counter, Adds: result.Counts, Type: number,
		Key: []result.Column{{Name: "cgroup", Type: event.Type{Kind: event.String}}, {Name: "nr", Type: number}}}
	for i := range uint64(manySeries) {
		table.Rows = append(table.Rows, result.Row{Key: []any{container(i / 20), i % 20}, Value: result.Number{Type: number, V: i}})
	}
	exporter := family.New(family.Config{Program: "bench", Series: manySeries})
	h := httptest.NewServer(newServer(answering(b, mapLoader{exporter: exporter, table: table}), wire.Settings{}).handler())
	b.Cleanup(h.Close)
	return h.URL + "/metrics"
}

// scrapeOnce returns how many bytes an answer has.
func scrapeOnce(b testing.TB, url string, header http.Header) int64 {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || n < manySeries {
		b.Fatal(n, answer.Status, err)
	}
	return n
}

func BenchmarkScrape(b *testing.B) {
	url := scraped(b)
	for name, header := range map[string]http.Header{
		"text":        {"Accept-Encoding": {"identity"}},
		"openmetrics": {"Accept-Encoding": {"identity"}, "Accept": {"application/openmetrics-text;version=1.0.0"}},
		"protobuf":    {"Accept-Encoding": {"identity"}, "Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}},
		"gzip":        {"Accept-Encoding": {"gzip"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := spent(b)
			for b.Loop() {
				b.ReportMetric(float64(scrapeOnce(b, url, header)), "bytes")
			}
			b.ReportMetric((spent(b)-before)/float64(b.N)*1000, "cpu-ms/op")
		})
	}
}

// A series costs few pieces of memory: as JSON, and through a registry, it took twenty.
func TestScrapeIsCheap(t *testing.T) {
	url := scraped(t)
	if n := testing.AllocsPerRun(3, func() { scrapeOnce(t, url, http.Header{"Accept-Encoding": {"gzip"}}) }); n > 5*manySeries {
		t.Errorf("a scrape of %d series needs %v pieces of memory", manySeries, n)
	}
}

// container returns the path of a container's cgroup, as systemd and containerd make it.
func container(i uint64) string {
	id := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
	return fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%x.slice/cri-containerd-%x.scope", id[:16], id)
}

// spent returns the CPU time of this process in seconds.
func spent(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
