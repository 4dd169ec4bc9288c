package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
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
		"--log.level=warn", "--enable-feature=native-histograms,created-timestamp-zero-ingestion,exemplar-storage")
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

// exemplars returns the values of a label in the exemplars of the last hour.
func (d database) exemplars(t *testing.T, name, label string) (all []string) {
	t.Helper()
	now := time.Now()
	_, text := httpGet(d.address, fmt.Sprintf("/api/v1/query_exemplars?query=%s&start=%d&end=%d", name, now.Add(-time.Hour).Unix(), now.Add(time.Hour).Unix()))
	var answer struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v: %s", d.name, err, text)
	}
	for _, series := range answer.Data {
		for _, e := range series.Exemplars {
			all = append(all, e.Labels[label])
		}
	}
	return all
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

// sending returns a configuration with programs that sends to the receiver.
func (j judges) sending(programs string) string {
	return fmt.Sprintf("otlp: {endpoint: \"http://%s/opentelemetry\", interval: %v}\n%s", j.sent.address, rhythm(), programs)
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
	s := newService(t, j.sending(programs))
	j.start(t, s.address)
	calls := 0
	var callers []string
	call := func(n int) {
		t.Helper()
		cmd := exec.Command("helper", strconv.Itoa(n))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		calls += n
		callers = append(callers, strconv.Itoa(cmd.Process.Pid))
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
	if tids := j.scraped.exemplars(t, "trace_latency_seconds", "tid"); len(tids) == 0 || slices.ContainsFunc(tids, func(tid string) bool { return !slices.Contains(callers, tid) }) {
		t.Errorf("exemplars are of the threads %v, and the callers are %v", tids, callers)
	}

	before := s.created(t)
	s.configure(t, j.sending(strings.Replace(programs, "{ @ = count() }", "{ @ = count(); @size = sum(8) }", 1)))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	call(300) // while the configuration is read: the program before counts them, or the new one
	seen()
	var during int
	eventually(t, "the new program", func() bool {
		found := j.scraped.query(t, "trace_changed_size_total")
		if len(found) == 1 {
			during = int(found[0].Value.value)
		}
		return len(found) == 1
	})
	if during > 300*8 || during%8 != 0 {
		t.Errorf("the new program counts %d for at most 300 calls", during)
	}
	call(500)
	seen()
	j.become(t, "trace_changed_size_total", during+500*8)
	after := s.created(t)
	if changed := "trace_changed_total"; !after[changed].After(before[changed]) {
		t.Errorf("%s began at %v, and at %v before the reload", changed, after[changed], before[changed])
	}
	for _, same := range []string{"trace_calls_n_total", "trace_latency_seconds", "trace_many_total"} {
		if !after[same].Equal(before[same]) || after[same].IsZero() {
			t.Errorf("%s began at %v, and at %v before the reload", same, after[same], before[same])
		}
	}

	s.manager = newManager(t)
	s.stop(t) // without a manager
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

	s.stop(t)
	s.start(t)
	call(100)
	seen()
	for _, d := range []database{j.scraped, j.sent} {
		if sum, resets := d.counted(t, "trace_calls_n_total"); sum != float64(total+calls) || resets != 1 {
			t.Errorf("%s: %v calls and %d resets, want %d calls and no other reset", d.name, sum, resets, total+calls)
		}
	}
}
