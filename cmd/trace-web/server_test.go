package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
)

// loader answers as a loader does.
type loader struct {
	settings wire.Settings
	waiting  map[string]string
	leftOut  map[string][]string
	families family.Set
	asked    *atomic.Int64
	slow     time.Duration
	mistake  error // of a reload
}

func (l loader) Answer(ctx context.Context, r wire.Request) (any, error) {
	switch r.Do {
	case wire.GetSettings:
		return l.settings, nil
	case wire.GetReady:
		return wire.Ready{Waiting: l.waiting, LeftOut: l.leftOut}, nil
	case wire.GetMetrics:
		l.asked.Add(1)
		time.Sleep(l.slow)
		return l.families, nil
	case wire.GetProfile:
		if r.Program != "stacks" {
			return nil, errors.New("there is no program " + r.Program)
		}
		return []byte("a profile"), nil
	case wire.DoReload:
		return struct{}{}, l.mistake
	}
	return nil, errors.ErrUnsupported
}

func (l loader) Events(ctx context.Context, send func([]wire.Event) error) error {
	at := time.Unix(1_700_000_000, 0)
	send([]wire.Event{
		{Program: "flows", Probe: "ib:modify_qp", Time: at, Fields: json.RawMessage(`{"qp.num":17,"dev":"rxe0","big":18446744073709551615,"srq":false}`)},
		{Program: "flows", Time: at, Text: "a line\n", Lost: 3},
	})
	<-ctx.Done()
	return ctx.Err()
}

var someFamilies = []family.Family{
	{Name: "trace_nvme_commands_total", Help: "Commands.", Kind: family.Counter, Labels: []string{"dev"}, Series: []family.Series{
		{Labels: []string{"nvme0"}, Value: 7, Created: time.Unix(1_600_000_000, 0)}, {Labels: []string{"a\"b\n{}"}, Value: 1}, {Labels: []string{"other"}, Overflow: true, Value: 2},
	}},
	{Name: "trace_nvme_depth", Help: "Depth.", Kind: family.Gauge, Series: []family.Series{{Value: 3.5}}},
	{Name: "trace_nvme_bytes", Help: "Sizes.", Kind: family.Summary, Unit: "bytes", Series: []family.Series{{Value: 4096, Count: 2}}},
	{Name: "trace_nvme_latency_seconds", Help: "Latency.", Kind: family.Distribution, Unit: "seconds", Series: []family.Series{{Count: 6, Buckets: &family.Buckets{
		Classic: []family.ClassicBucket{{Upper: 0.001, Count: 2}, {Upper: 0.01, Count: 5}}, HasNative: true, Schema: 3, Zero: 1,
		Positive:  []family.NativeBucket{{Index: -10, Count: 2}, {Index: -8, Count: 3}},
		Exemplars: []family.Exemplar{{Value: 0.005, TID: 77, Time: time.Unix(1_700_000_000, 0)}, {Value: 0.02, TID: 4_000_000_000, Time: time.Unix(1_700_000_001, 500e6)}},
	}}}},
}

// serving starts a loader, and a server that asks it.
func serving(t *testing.T, l loader) *server {
	t.Helper()
	if l.asked == nil {
		l.asked = &atomic.Int64{}
	}
	return newServer(answering(t, l), l.settings)
}

// answering starts a loader.
func answering(t testing.TB, l wire.Handler) wire.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { wire.Serve(ctx, listener, wire.Anyone, l) })
	t.Cleanup(func() { end(); over.Wait() })
	return wire.Client{Path: path}
}

func get(s *server, method, path string) (status int, body string) {
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String()
}

func TestHandler(t *testing.T) {
	s := serving(t, loader{settings: wire.Settings{Version: "v1", Host: "node1"}, families: someFamilies})
	reloads := serving(t, loader{settings: wire.Settings{ReloadByHTTP: true}})
	waiting := serving(t, loader{settings: wire.Settings{ReloadByHTTP: true}, mistake: errors.New("trace.yaml:1:1: a mistake"), waiting: map[string]string{"nvme": "module nvme is not loaded", "a": "why"},
		leftOut: map[string][]string{"host": {"oom:kill is not available"}}})
	partly := serving(t, loader{leftOut: map[string][]string{"host": {"oom:kill is not available", "sched:hung is not available"}}})
	gone := newServer(wire.Client{Path: "/nowhere"}, wire.Settings{})
	for _, test := range []struct {
		server       *server
		method, path string
		status       int
		body         string
	}{
		{s, "GET", "/", 200, "trace v1 on node1\n"}, {s, "GET", "/-/healthy", 200, "healthy\n"}, {s, "GET", "/-/ready", 200, "ready\n"},
		{s, "GET", "/nothing", 404, ""}, {s, "POST", "/metrics", 405, ""}, {s, "GET", "/-/reload", 405, ""},
		{waiting, "GET", "/-/ready", 503, "a: why\nnvme: module nvme is not loaded\nhost: left out: oom:kill is not available\n"},
		{partly, "GET", "/-/ready", 200, "ready\nhost: left out: oom:kill is not available\nhost: left out: sched:hung is not available\n"},
		{s, "POST", "/-/reload", 403, "reload_by_http is not set in the configuration\n"},
		{reloads, "POST", "/-/reload", 200, "reloaded\n"}, {waiting, "POST", "/-/reload", 422, "trace.yaml:1:1: a mistake\n"},
		{s, "GET", "/profile?program=stacks&seconds=1", 200, "a profile"}, {s, "GET", "/profile?program=none&seconds=1", 404, "there is no program none\n"},
		{s, "GET", "/profile?program=stacks", 400, "write /profile?program=NAME&seconds=N, with N from 1 to 300\n"},
		{s, "GET", "/profile?program=stacks&seconds=301", 400, ""},
		{s, "GET", "/metrics", 200, "trace_nvme_commands_total{dev=\"a\\\"b\\n{}\"} 1\ntrace_nvme_commands_total{dev=\"nvme0\"} 7\ntrace_nvme_commands_total{dev=\"other\"} 2\n"},
		{s, "GET", "/metrics", 200, "trace_nvme_latency_seconds_bucket{le=\"0.001\"} 2\ntrace_nvme_latency_seconds_bucket{le=\"0.01\"} 5\ntrace_nvme_latency_seconds_bucket{le=\"+Inf\"} 6\n"},
		{gone, "GET", "/-/ready", 503, "is `trace serve` running?"}, {gone, "GET", "/metrics", 500, "is `trace serve` running?"},
	} {
		if status, body := get(test.server, test.method, test.path); status != test.status || !strings.Contains(body, test.body) {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.path, status, body, test.status, test.body)
		}
	}
}

// A scraper that understands gzip, as Prometheus does, gets it.
func TestCompressed(t *testing.T) {
	s := serving(t, loader{families: slices.Concat(someFamilies, family.Set{{Name: "trace_long", Help: strings.Repeat("long ", 1000), Kind: family.Gauge, Series: []family.Series{{}}}})})
	_, plain := get(s, "GET", "/metrics")
	for encoding, want := range map[string]string{"gzip": "gzip", "gzip;q=0": "", "zstd": "", "identity": ""} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		s.handler().ServeHTTP(w, r)
		var body io.Reader = w.Body
		if size := w.Body.Len(); want == "gzip" && size > len(plain)/4 {
			t.Errorf("%d bytes are compressed to %d", len(plain), size)
		}
		if got := w.Header().Get("Content-Encoding"); got != want {
			t.Errorf("%s: the answer is %q, want %q", encoding, got, want)
		} else if got == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		if text, err := io.ReadAll(body); err != nil || string(text) != plain {
			t.Errorf("%s: %v, %q, want %q", encoding, err, text, plain)
		}
	}
}

// Exemplars are in the buckets of a scraper that asks for OpenMetrics, also behind the last bound.
func TestOpenMetrics(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	serving(t, loader{families: someFamilies}).handler().ServeHTTP(w, r)
	for _, want := range []string{
		`bucket{le="0.001"} 2` + "\n", `bucket{le="0.01"} 5 # {tid="77"} 0.005 1.7e+09` + "\n", `bucket{le="+Inf"} 6 # {tid="4000000000"} 0.02 1.7000000015e+09` + "\n",
	} {
		if !strings.Contains(w.Body.String(), "trace_nvme_latency_seconds_"+want) {
			t.Errorf("without %s:\n%s", want, w.Body)
		}
	}
}

// A crowd of scrapers asks the loader seldom, and none of them waits for ever.
func TestCrowdOfScrapers(t *testing.T) {
	asked := &atomic.Int64{}
	s := serving(t, loader{families: someFamilies, asked: asked, slow: 100 * time.Millisecond})
	h := httptest.NewServer(s.handler())
	defer h.Close()
	var answered, refused atomic.Int64
	var all sync.WaitGroup
	for range 1000 {
		all.Go(func() {
			r, err := http.Get(h.URL + "/metrics")
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Body.Close()
			io.Copy(io.Discard, r.Body)
			switch r.StatusCode {
			case http.StatusOK:
				answered.Add(1)
			case http.StatusServiceUnavailable:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if answered.Load() == 0 || answered.Load()+refused.Load() != 1000 || asked.Load() > answered.Load() {
		t.Errorf("%d answered, %d refused, the loader was asked %d times", answered.Load(), refused.Load(), asked.Load())
	}
}

// A body without end is cut.
func TestHugeBody(t *testing.T) {
	s := serving(t, loader{settings: wire.Settings{ReloadByHTTP: true}})
	h := httptest.NewServer(s.handler())
	defer h.Close()
	r, err := http.Post(h.URL+"/profile?program=stacks&seconds=1", "text/plain", io.LimitReader(zeros{}, 1<<30))
	if err == nil {
		defer r.Body.Close()
		if r.StatusCode/100 == 2 {
			t.Errorf("it answers %s", r.Status)
		}
	}
	if status, _ := get(s, "GET", "/-/healthy"); status != 200 {
		t.Errorf("afterwards it answers %d", status)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// receiver is an OTLP receiver, which refuses the first requests.
type receiver struct {
	mu      sync.Mutex
	refuse  int
	metrics []*metricspb.MetricsData
	logs    []*logspb.LogsData
	header  string
}

func (o *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refuse > 0 {
		o.refuse--
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	}
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	data, _ := io.ReadAll(z)
	o.header = r.Header.Get("Authorization")
	switch r.URL.Path {
	case "/v1/metrics":
		m := &metricspb.MetricsData{}
		if proto.Unmarshal(data, m) == nil {
			o.metrics = append(o.metrics, m)
		}
	case "/v1/logs":
		l := &logspb.LogsData{}
		if proto.Unmarshal(data, l) == nil {
			o.logs = append(o.logs, l)
		}
	}
}

// exporting sends to a receiver until it has received metrics and events.
func exporting(t *testing.T, o *receiver) *exporter {
	t.Helper()
	h := httptest.NewServer(o)
	t.Cleanup(h.Close)
	s := serving(t, loader{families: someFamilies, settings: wire.Settings{
		Host: "node1", Labels: map[string]string{"rack": "r17"},
		OTLP: &wire.OTLP{Endpoint: h.URL, Interval: 20 * time.Millisecond, Headers: map[string]string{"authorization": "Bearer x"}},
	}})
	s.exporter = newExporter(s, slog.New(slog.DiscardHandler))
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.exporter.metrics(ctx) })
	all.Go(func() { s.exporter.events(ctx) })
	for began := time.Now(); ; {
		o.mu.Lock()
		done := len(o.metrics) > 0 && s.exporter.sent.Load() > 0
		o.mu.Unlock()
		if done {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("nothing is received")
		}
		time.Sleep(10 * time.Millisecond)
	}
	end()
	all.Wait()
	return s.exporter
}

func TestOTLP(t *testing.T) {
	o := &receiver{}
	x := exporting(t, o)
	if o.header != "Bearer x" {
		t.Errorf("header %q", o.header)
	}
	all := map[string]*metricspb.Metric{}
	for _, m := range o.metrics[0].ResourceMetrics[0].ScopeMetrics[0].Metrics {
		all[m.Name] = m
	}
	sum := all["trace_nvme_commands_total"].GetSum()
	if !sum.IsMonotonic || len(sum.DataPoints) != 3 || sum.DataPoints[0].GetAsDouble() != 7 || sum.DataPoints[0].StartTimeUnixNano != 1_600_000_000e9 {
		t.Errorf("%v", sum)
	}
	if other := sum.DataPoints[2].Attributes; len(other) != 2 || other[1].Key != "otel.metric.overflow" || !other[1].Value.GetBoolValue() {
		t.Errorf("%v", other)
	}
	if g := all["trace_nvme_depth"].GetGauge(); g.DataPoints[0].GetAsDouble() != 3.5 {
		t.Errorf("%v", g)
	}
	if p := all["trace_nvme_bytes"].GetSummary().DataPoints[0]; p.Count != 2 || p.Sum != 4096 || all["trace_nvme_bytes"].Unit != "By" {
		t.Errorf("%v", p)
	}
	p := all["trace_nvme_latency_seconds"].GetExponentialHistogram().DataPoints[0]
	if p.Count != 6 || p.Scale != 3 || p.ZeroCount != 1 || p.Positive.Offset != -11 || !equal(p.Positive.BucketCounts, 2, 0, 3) || p.Negative != nil {
		t.Errorf("%v", p)
	}
	for i, want := range []string{`77 at 1700000000000000000: 0.005`, `4000000000 at 1700000001500000000: 0.02`} {
		e := p.Exemplars[i]
		if got := fmt.Sprintf("%d at %d: %v", e.FilteredAttributes[0].Value.GetIntValue(), e.TimeUnixNano, e.GetAsDouble()); got != want || e.FilteredAttributes[0].Key != "tid" {
			t.Errorf("exemplar %s, want %s", got, want)
		}
	}
	logs := o.logs[0].ResourceLogs[0].ScopeLogs[0].LogRecords
	if len(logs) != 2 || logs[0].EventName != "ib:modify_qp" || logs[0].TimeUnixNano != 1_700_000_000e9 || logs[1].Body.GetStringValue() != "a line\n" {
		t.Fatalf("%v", logs)
	}
	var text strings.Builder
	for _, a := range logs[0].Attributes {
		text.WriteString(a.Key + "=" + strings.Join(strings.Fields(a.Value.String()), "") + " ")
	}
	if want := `program=string_value:"flows" rack=string_value:"r17" big=string_value:"18446744073709551615" dev=string_value:"rxe0" qp.num=int_value:17 srq=bool_value:false `; text.String() != want {
		t.Errorf("%s, want %s", text.String(), want)
	}
	if x.sent.Load() != 2 || x.lost.Load() != 3 {
		t.Errorf("%d sent, %d lost", x.sent.Load(), x.lost.Load())
	}
}

func equal(got []uint64, want ...uint64) bool { return slices.Equal(got, want) }

// A receiver that is not there for a moment gets the events later.
func TestOTLPLater(t *testing.T) {
	o := &receiver{refuse: 2}
	x := exporting(t, o)
	if x.sent.Load() != 2 || x.failed.Load() < 2 {
		t.Errorf("%d sent, %d requests failed", x.sent.Load(), x.failed.Load())
	}
}

// A histogram without native buckets has its own bounds.
func TestClassicHistogram(t *testing.T) {
	f := family.Family{Name: "h", Kind: family.Distribution, Series: []family.Series{{Count: 6, Buckets: &family.Buckets{
		Classic: []family.ClassicBucket{{Upper: 1, Count: 2}, {Upper: 10, Count: 5}},
	}}}}
	p := metricOf(f, time.Now()).GetHistogram().DataPoints[0]
	if !equal(p.BucketCounts, 2, 3, 1) || len(p.ExplicitBounds) != 2 {
		t.Errorf("%v", p)
	}
}

// secure is a web_config with TLS and a password, which is "secret" (bcrypt).
const secure = `tls_server_config: {cert_file: cert.pem, key_file: key.pem}
basic_auth_users: {prometheus: $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}
`

// certify writes a certificate and its key, and returns whom to trust.
func certify(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	for name, b := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(b)
		trusted.AppendCertsFromPEM(text)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return trusted
}

// web_config demands TLS and a password.
func TestWebConfig(t *testing.T) {
	dir := t.TempDir()
	trusted := certify(t, dir)
	file := filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(file, []byte(secure), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := serving(t, loader{settings: wire.Settings{Listen: address, WebConfig: file}, families: someFamilies})
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- run(ctx, s.loader, slog.New(slog.DiscardHandler)) }()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	ask := func(scheme, user, password string) (status int, body string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			r.SetBasicAuth(user, password)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		data, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(data)
	}
	for range 500 {
		if status, _ := ask("https", "", ""); status != 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, test := range []struct {
		scheme, user, password string
		status                 int
		has                    string
	}{
		{"http", "prometheus", "secret", 400, "HTTPS server"}, {"https", "", "", 401, ""}, {"https", "prometheus", "wrong", 401, ""}, {"https", "root", "secret", 401, ""},
		{"https", "prometheus", "secret", 200, "trace_nvme_commands_total"},
	} {
		status, body := ask(test.scheme, test.user, test.password)
		if status != test.status || !strings.Contains(body, test.has) || status != 200 && strings.Contains(body, "trace_nvme") {
			t.Errorf("%s as %q with %q: %d %.100s", test.scheme, test.user, test.password, status, body)
		}
	}
	end()
	if err := <-over; err != nil {
		t.Error(err)
	}
	broken := serving(t, loader{settings: wire.Settings{Listen: address, WebConfig: file + ".none"}})
	if err := run(t.Context(), broken.loader, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "web.yaml.none") {
		t.Error(err)
	}
}

// The process ends when its settings change, so that it is started with the new ones, and fails if its address is taken.
func TestListen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "web.sock")
	s := serving(t, loader{settings: wire.Settings{Listen: "unix:" + socket, Version: "v1"}})
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- run(ctx, s.loader, slog.New(slog.DiscardHandler)) }()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	var body bytes.Buffer
	for range 500 {
		if r, err := client.Get("http://trace/-/healthy"); err == nil {
			io.Copy(&body, r.Body)
			r.Body.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if body.String() != "healthy\n" {
		t.Errorf("%q", body.String())
	}
	end()
	if err := <-over; err != nil {
		t.Error(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := serving(t, loader{settings: wire.Settings{Listen: l.Addr().String()}})
	if err := run(t.Context(), taken.loader, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Error(err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
