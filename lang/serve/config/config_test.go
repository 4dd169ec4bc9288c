package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const whole = `# the service
listen: "[::]:9935"
web_config: web.yaml
reload_by_http: true
pprof: 127.0.0.1:6060
otlp:
  endpoint: http://127.0.0.1:4318/
  interval: 10
  headers: {authorization: "${file:secret}"}
labels: {cluster: a3, rack: 17}
filter: {cgroup: /kubepods}
programs:
  - name: nvme
    script: nvme_latency
    params: {nsid: 1, lat_min_us: 0}
  - name: flows
    file: flows.trace
    series: 5000
    events: otlp
  - name: calls
    program: 'syscall:enter { @n[name = comm] = count() }'
    maps:
      n: {help: "calls by process", metric: by_process}
`

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"trace.yaml": whole, "flows.trace": "ib:modify_qp", "secret": "Bearer x\n"})
	c, err := Load(filepath.Join(dir, "trace.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "[::]:9935" || c.WebConfig != filepath.Join(dir, "web.yaml") || !c.ReloadByHTTP || c.Pprof != "127.0.0.1:6060" {
		t.Errorf("%+v", c)
	}
	if o := c.OTLP; o.Endpoint != "http://127.0.0.1:4318" || o.Interval != 10*time.Second || o.Headers["authorization"] != "Bearer x" {
		t.Errorf("%+v", o)
	}
	if c.Labels["rack"] != "17" || c.Labels["cluster"] != "a3" || c.Filter.Cgroup != "/kubepods" || len(c.Programs) != 3 {
		t.Errorf("%+v", c)
	}
	if p := c.Programs[0]; p.Script != "nvme_latency" || p.Params["nsid"] != "1" || p.Params["lat_min_us"] != "0" || p.Series != DefaultSeries {
		t.Errorf("%+v", p)
	}
	if p := c.Programs[1]; p.Text.Content != "ib:modify_qp" || p.Text.Name != filepath.Join(dir, "flows.trace") || p.Series != 5000 || p.Events != "otlp" {
		t.Errorf("%+v", p)
	}
	if p := c.Programs[2]; !strings.HasPrefix(p.Text.Content, "syscall:enter {") || p.Maps["n"].Help != "calls by process" || p.Maps["n"].Metric != "by_process" || p.Maps["n"].Place.String() != filepath.Join(dir, "trace.yaml")+":23:45" ||
		p.Place.String() != filepath.Join(dir, "trace.yaml")+":20:11" ||
		p.Text.Name != filepath.Join(dir, "trace.yaml")+":21" {
		t.Errorf("%+v", p)
	}
}

// A folder is one configuration: Kubernetes mounts its files behind links, and has more entries, whose names begin with a dot.
func TestLoadFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"b.yaml": "programs: [{name: b, program: 'nvme:*'}]\n", "a.yaml": "labels: {x: y}\nprograms: [{name: a, file: a.trace}]\n",
		"a.trace": "ib:*", ".swp.yaml": "x: [", "empty.yaml": "# nothing\n",
	})
	c, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Programs) != 2 || c.Programs[0].Name != "a" || c.Programs[1].Name != "b" || c.Listen != DefaultListen {
		t.Errorf("%+v", c)
	}
	write(t, dir, map[string]string{"c.yaml": "labels: {z: y}\nprograms: [{name: a, program: 'ib:*'}]\n"})
	_, err = Load(dir)
	for _, want := range []string{`c.yaml:1:9: "labels" is set in ` + dir + `/a.yaml, too`, "c.yaml:2:19: program a is also at " + dir + "/a.yaml:2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.HasPrefix(err.Error(), "configuration: the folder ") || !strings.HasSuffix(err.Error(), " has no *.yaml") {
		t.Error(err)
	}
}

// Each mistake has its place and, where something is near, a suggestion.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"lisen: x":                    "1:1: the configuration has no key \"lisen\"\n    lisen: x\n    ^~~~~\nhelp: did you mean listen?",
		"listen: here":                "1:9: this is not an address\n    listen: here\n            ^~~~\nhelp: write it as 127.0.0.1:9935 or [::]:9935, or as unix:/run/trace/web.sock",
		"listen: 127.0.0.1:99999":     "this is not an address",
		"pprof: unix:/x":              "this is not an address",
		"listen: [1]":                 "this is not an address",
		"reload_by_http: yes":         "this is not true or false",
		"otlp: {interval: 10s}":       "otlp has no endpoint\n    otlp: {interval: 10s}\n          ^\nhelp: write endpoint: http://127.0.0.1:4318",
		"otlp: {endpoint: 'ftp://x'}": "this is not the URL of an OTLP receiver\n    otlp: {endpoint: 'ftp://x'}\n                     ^~~~~~~\nhelp: write it as http://127.0.0.1:4318, without /v1/metrics",
		"otlp: {endpoint: 'http://x', interval: 1ms}":                    "this is not a duration from 1s to 24h\n    otlp: {endpoint: 'http://x', interval: 1ms}\n                                           ^~~\nhelp: write it as 30s or 1m",
		"otlp: {endpoint: 'http://x', headers: {a: '${file:/nowhere}'}}": "header a: stat /nowhere: no such file or directory",
		"labels: {le: 1}":                                           `"le" cannot be a name here`,
		"labels: {a-b: 1}":                                          "a label consists of letters",
		"labels: [x]":                                               "this is not labels\n    labels: [x]\n            ^\nhelp: write them as {name: value}",
		"labels: {a: 1, a: 2}":                                      "",
		"filter: {pid: 0}":                                          "this is not a number from 1 to 4194304",
		"filter: {pod: x}":                                          `the filter has no key "pod"`,
		"programs: {}":                                              "programs is a list\n    programs: {}\n              ^\nhelp: begin each program with `- name: NAME`",
		"programs: [x]":                                             "a program consists of keys and values",
		"programs: [{name: X, program: x}]":                         "\"X\" cannot be the name of a program\n    programs: [{name: X, program: x}]\n                      ^\nhelp: it consists of a letter and more letters, digits and _, all small",
		"programs: [{name: x}]":                                     "a program has a name, and one of script, file and program",
		"programs: [{program: x}]":                                  "a program has a name, and one of script, file and program",
		"programs: [{name: x, program: y, script: z}]":              "a program has a name, and one of script, file and program",
		"programs: [{name: x, file: nowhere}]":                      "no such file or directory\n    programs: [{name: x, file: nowhere}]\n                               ^~~~~~~\nhelp: the name is relative to the configuration",
		"programs: [{name: x, program: y, maps: [n]}]":              "maps consists of names of maps and what is known of them\n    programs: [{name: x, program: y, maps: [n]}]\n                                           ^\nhelp: write it as {n: {help: …}}",
		"programs: [{name: x, file: /dev/zero}]":                    "/dev/zero is not a file",
		"programs: [{name: x, program: ''}]":                        "the program is empty",
		"programs: [{name: x, program: y, series: 0}]":              "this is not a number from 1 to 100000",
		"programs: [{name: x, program: y, events: all}]":            "events are sent to otlp or to none",
		"programs: [{name: x, program: y, maps: {n: {metric: A}}}]": "\"A\" cannot be the name of a metric\n    programs: [{name: x, program: y, maps: {n: {metric: A}}}]\n                                               ^\nhelp: it consists of small letters, digits and _",
		"a: [":                                "this is not YAML: ",
		"labels: {a: 1}\n---\nlabels: {b: 2}": "a file is one document\n    ---\n    ^\nhelp: write a file for each, in a folder",
		"x: &a [*a]":                          "",
		"\"\\xff\": 1":                        "has no key",
	} {
		file := filepath.Join(t.TempDir(), "trace.yaml")
		write(t, filepath.Dir(file), map[string]string{"trace.yaml": text})
		_, err := Load(file)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		} else if !strings.Contains(err.Error(), "trace.yaml") {
			t.Errorf("%s: no place in %v", text, err)
		}
	}
	if _, err := Load("/nowhere"); err == nil || !strings.HasPrefix(err.Error(), "configuration: ") || !strings.HasSuffix(err.Error(), ": give its file or folder with -c") {
		t.Error(err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || !strings.HasSuffix(err.Error(), "large has 4 MiB, at most 4 are read") {
		t.Error(err)
	}
	if _, err := Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Error(err)
	}
}

// Whatever a file holds, there is a configuration or an error.
func FuzzLoad(f *testing.F) {
	f.Add(whole)
	f.Add("a: &a [*a]\n<<: *a")
	f.Add("programs:\n- &p {name: x, program: y}\n- *p")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "file") {
			t.Skip("it may name any file of this machine")
		}
		name := filepath.Join(dir, "fuzz.yaml")
		write(t, dir, map[string]string{"fuzz.yaml": text})
		c, err := Load(name)
		if (c == nil) == (err == nil) {
			t.Errorf("%v and %v", c, err)
		}
	})
}
