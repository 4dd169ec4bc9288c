package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// database is a Prometheus, or a VictoriaMetrics, of a test.
type database struct{ name, address string }

// judges are the databases of a service: Prometheus scrapes it, and VictoriaMetrics receives OTLP, which Debian's Prometheus cannot.
type judges struct {
	folder        string // of their binaries
	scraped, sent database
}

// prometheusConfig scrapes protobuf, the only form with native buckets.
const prometheusConfig = `global: {scrape_interval: %[2]v, scrape_timeout: %[2]v}
scrape_configs:
  - job_name: trace
    scrape_protocols: [PrometheusProto]
    static_configs: [{targets: ["%[1]s"]}]
`

// rhythm is how often the databases get metrics. The CPU of a virtual machine is slow.
func rhythm() time.Duration {
	if inMachine() {
		return 5 * time.Second
	}
	return time.Second
}

func inMachine() bool { return os.Getenv("VMTEST_KERNEL") != "" }

// findJudges skips the test if `.ci/setup prometheus` was not run.
func findJudges(t *testing.T) judges {
	t.Helper()
	folder, err := filepath.Abs(filepath.Join(root, ".vmtest/prometheus"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "usr/bin/victoria-metrics")); err != nil {
		t.Skip("needs Debian's Prometheus and VictoriaMetrics, which .ci/setup prometheus installs")
	}
	return judges{folder, database{"prometheus", freeAddress(t)}, database{"victoria-metrics", freeAddress(t)}}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// command is a command of their release, whose C library is newer than this machine's.
func (j judges) command(name string, args ...string) *exec.Cmd {
	in := func(name string) string { return filepath.Join(j.folder, name) }
	loader := []string{"--library-path", in("lib/x86_64-linux-gnu"), in("usr/bin/" + name)}
	return exec.Command(in("lib64/ld-linux-x86-64.so.2"), append(loader, args...)...)
}

// start starts both.
func (j judges) start(t *testing.T, target string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, prometheusConfig, target, rhythm()), 0o600); err != nil {
		t.Fatal(err)
	}
	j.run(t, j.scraped, "/-/ready", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+j.scraped.address,
		"--log.level=warn", "--enable-feature=native-histograms,created-timestamp-zero-ingestion")
	j.run(t, j.sent, "/health", "--storageDataPath="+filepath.Join(dir, "victoria"), "--httpListenAddr="+j.sent.address, "--search.latencyOffset=0s",
		"--search.disableCache", "--loggerLevel=WARN", "--opentelemetry.usePrometheusNaming")
}

func (j judges) run(t *testing.T, d database, ready string, args ...string) {
	t.Helper()
	cmd := j.command(d.name, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if cmd.Wait(); t.Failed() {
			t.Logf("%s: %s", d.name, log.String())
		}
	})
	eventually(t, d.name+" is ready", func() bool { status, _ := httpGet(d.address, ready); return status == http.StatusOK })
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("waited in vain: " + what)
		}
	}
}

func httpGet(address, path string) (status int, text string) {
	r, err := http.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(data)
}

// result is a series of an answer of Prometheus.
type result struct {
	Metric map[string]string
	Value  point   // of an instant
	Values []point // of a range
}

// point is a time and a value.
type point struct {
	at    float64
	value float64
}

// UnmarshalJSON reads [time, "value"].
func (p *point) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &[]any{&p.at, &text}); err != nil {
		return err
	}
	var err error
	p.value, err = strconv.ParseFloat(text, 64)
	return err
}

// query evaluates PromQL.
func (d database) query(t *testing.T, expr string) []result {
	t.Helper()
	_, text := httpGet(d.address, "/api/v1/query?query="+url.QueryEscape(expr))
	var answer struct {
		Data  struct{ Result []result }
		Error string
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %s: %v: %s", d.name, expr, err, text)
	}
	return answer.Data.Result
}

// becomes waits until an expression has one series with a value.
func (d database) becomes(t *testing.T, expr string, want int) {
	t.Helper()
	var last []result
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s is %+v, want %d", d.name, expr, last, want)
		}
	}()
	eventually(t, fmt.Sprintf("%s: %s == %d", d.name, expr, want), func() bool {
		last = d.query(t, expr)
		return len(last) == 1 && last[0].Value.value == float64(want)
	})
}

// become waits until an expression has a value in both. COUNT(h) is the count of a histogram.
func (j judges) become(t *testing.T, expr string, want int) {
	t.Helper()
	count := regexp.MustCompile(`COUNT\((\w+)(\{.*?\})?\)`)
	j.scraped.becomes(t, count.ReplaceAllString(expr, "histogram_count($1$2)"), want)
	j.sent.becomes(t, count.ReplaceAllString(expr, "${1}_count$2"), want)
}

// recent returns the series that were in the last metrics: what was sent of others stays for minutes.
func recent(name string) string { return fmt.Sprintf("last_over_time(%s[%v])", name, 5*rhythm()) }

// counted adds what a counter of one series has gained since the beginning: after a reset it begins at 0.
func (d database) counted(t *testing.T, name string) (sum float64, resets int) {
	t.Helper()
	series := d.query(t, name+"[1h]")
	if len(series) != 1 {
		t.Fatalf("%s: %s has %d series", d.name, name, len(series))
	}
	before := 0.0
	for _, v := range series[0].Values {
		if v.value < before {
			before = 0
			resets++
		}
		sum, before = sum+v.value-before, v.value
	}
	return sum, resets
}

// checkMetrics lets promtool find faults in what the service shows.
func (j judges) checkMetrics(t *testing.T, address string) {
	t.Helper()
	_, text := httpGet(address, "/metrics")
	cmd := j.command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// service is a trace serve of a test, with its trace-web.
type service struct {
	file, address string
	cmd           *exec.Cmd
	log           string
	over          chan struct{} // closed when it has ended, with err
	err           error
}

// newService starts a service with programs, which sends to Prometheus, too.
func newService(t *testing.T, j judges, programs string) *service {
	t.Helper()
	dir := t.TempDir()
	s := &service{file: filepath.Join(dir, "trace.yaml"), address: freeAddress(t), log: filepath.Join(dir, "log")}
	provideWeb(t)
	s.configure(t, j, programs)
	t.Cleanup(func() {
		if log, err := os.ReadFile(s.log); t.Failed() {
			t.Logf("%v: %s", err, log)
		}
	})
	s.start(t)
	t.Cleanup(func() { s.stop(t) })
	return s
}

// configure writes the configuration.
func (s *service) configure(t *testing.T, j judges, programs string) {
	t.Helper()
	text := fmt.Sprintf("listen: %s\notlp: {endpoint: \"http://%s/opentelemetry\", interval: %v}\n%s", s.address, j.sent.address, rhythm(), programs)
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts it, and waits until all programs are attached.
func (s *service) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command("trace", "serve", "-c", s.file)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.over = make(chan struct{})
	go func() {
		s.err = s.cmd.Wait()
		close(s.over)
	}()
	s.attached(t)
}

// created returns when metrics were 0.
func (s *service) created(t *testing.T) map[string]time.Time {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	all := map[string]time.Time{}
	d := expfmt.NewDecoder(answer.Body, expfmt.ResponseFormat(answer.Header))
	for {
		var f dto.MetricFamily
		if err := d.Decode(&f); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		switch m := f.Metric[0]; {
		case m.Counter != nil:
			all[f.GetName()] = m.Counter.GetCreatedTimestamp().AsTime()
		case m.Histogram != nil:
			all[f.GetName()] = m.Histogram.GetCreatedTimestamp().AsTime()
		}
	}
}

// attached waits until all programs are attached.
func (s *service) attached(t *testing.T) {
	t.Helper()
	why := ""
	defer func() {
		if t.Failed() {
			t.Log(why)
		}
	}()
	eventually(t, "the programs are attached", func() (is bool) {
		select {
		case <-s.over:
			t.Fatalf("trace serve has ended: %v", s.err)
		default:
		}
		var status int
		status, why = httpGet(s.address, "/-/ready")
		return status == http.StatusOK
	})
}

// stop ends it as systemd does.
func (s *service) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	if <-s.over; s.err != nil {
		t.Errorf("trace serve: %v", s.err)
	}
}

// provideWeb makes trace-web a command. In a virtual machine there is no compiler: .ci/vmtest has built it.
func provideWeb(t *testing.T) {
	t.Helper()
	bin := t.TempDir()
	for _, dir := range []string{bin, filepath.Dir(bin)} { // nobody has to get at it
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	built, err := os.ReadFile(filepath.Join(root, ".vmtest/trace-web"))
	switch {
	case inMachine() && err != nil:
		err = fmt.Errorf("%w: .ci/vmtest builds it", err)
	case inMachine():
		err = os.WriteFile(filepath.Join(bin, "trace-web"), built, 0o755)
	default:
		var out []byte
		if out, err = exec.Command("go", "build", "-o", bin, "trace/cmd/trace-web").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// Databases see what happened, whether they scrape or receive: also after a reload, a restart, and in what has no series of its own.
func TestPrometheus(t *testing.T) {
	requireLive(t)
	j := findJudges(t)
	programs := `programs:
  - name: calls
    program: 'syscall:enter / comm == "helper" && nr == getppid / { @n = count() }'
  - name: latency
    program: 'syscall:exit / comm == "helper" && nr == getppid / { @ = hist(latency, 5) }'
  - name: many
    series: 3
    program: 'syscall:enter / comm == "helper" && nr == getppid / { @[key = nsecs % 30] = count() }'
  - name: changed
    program: 'syscall:enter / comm == "helper" && nr == getppid / { @ = count() }'
`
	s := newService(t, j, programs)
	j.start(t, s.address)
	calls := 0
	call := func(n int) {
		t.Helper()
		if out, err := exec.Command("helper", strconv.Itoa(n)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		calls += n
	}
	seen := func() {
		t.Helper()
		j.become(t, "trace_calls_n_total", calls)
		j.become(t, "COUNT(trace_latency_seconds)", calls)
		j.become(t, "sum("+recent("trace_many_total")+")", calls)
	}
	call(1000)
	seen()
	j.become(t, "trace_changed_total", 1000)
	j.become(t, "count(trace_many_total)", 4)
	j.checkMetrics(t, s.address)

	before := s.created(t)
	s.configure(t, j, strings.Replace(programs, "{ @ = count() }", "{ @ = count(); @size = sum(8) }", 1))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	call(300) // while the configuration is read
	j.become(t, "trace_changed_size_total", 0)
	call(500)
	seen()
	j.become(t, "trace_changed_size_total", 500*8)
	after := s.created(t)
	if changed := "trace_changed_total"; !after[changed].After(before[changed]) {
		t.Errorf("%s began at %v, and at %v before the reload", changed, after[changed], before[changed])
	}
	for _, same := range []string{"trace_calls_n_total", "trace_latency_seconds", "trace_many_total"} {
		if !after[same].Equal(before[same]) || after[same].IsZero() {
			t.Errorf("%s began at %v, and at %v before the reload", same, after[same], before[same])
		}
	}

	s.stop(t)
	s.start(t)
	total := calls
	calls = 0
	j.become(t, "trace_calls_n_total", 0)
	call(200)
	seen()
	for _, d := range []database{j.scraped, j.sent} {
		if sum, resets := d.counted(t, "trace_calls_n_total"); sum != float64(total+calls) || resets != 1 {
			t.Errorf("%s: %v calls and %d resets, want %d calls and a reset", d.name, sum, resets, total+calls)
		}
	}
}
