// Package config reads the file of `trace serve`: what the service runs, and where it shows the results.
//
// A file is YAML. A mistake has its place, and unknown keys have a suggestion. A folder stands for all *.yaml in it, in the order of
// their names, as a ConfigMap is mounted: keys of the service may stand in one of the files, and programs in all.
package config

import (
	"fmt"
	"time"

	"trace/lang/syntax"
)

// Config is what one service does.
type Config struct {
	// Listen is the address of trace-web, as host:port or unix:PATH.
	Listen string
	// WebConfig is a file with TLS, basic authentication and limits, in the form of Prometheus' exporter toolkit; "" for none.
	WebConfig string
	// ReloadByHTTP allows POST /-/reload.
	ReloadByHTTP bool
	// Pprof is the address for profiles of the service itself; "" for none.
	Pprof string
	// OTLP is where metrics and events are sent; nil for nowhere.
	OTLP *OTLP
	// Labels are on every series and event.
	Labels map[string]string
	// Filter restricts all programs to some processes.
	Filter   Filter
	Programs []*Program
}

// OTLP is an endpoint for metrics and logs, by protobuf over HTTP.
type OTLP struct {
	// Endpoint is the URL before /v1/metrics and /v1/logs.
	Endpoint string
	Interval time.Duration
	// Headers are sent with each request. They may hold secrets.
	Headers map[string]string
}

// Filter has the flags of the same names. A zero field passes everything.
type Filter struct {
	PID    int
	Comm   string
	Cgroup string
	PGID   int
	PIDNS  uint32
}

// Program is a program that runs as long as the service does.
type Program struct {
	// Name is unique. The metrics of the program begin with trace_ and the name.
	Name string
	// Script is a bundled script, or "". Params are its flags, or the flags of another program.
	Script string
	Params map[string]string
	// Text is the program of a file or of the configuration itself; its name is for mistakes.
	Text syntax.Text
	// Series limits the series of each map.
	Series int
	// Events is "otlp" if what the program prints is sent as logs; otherwise "".
	Events string
	// Maps describe some of its metrics.
	Maps map[string]Map
	// Place is where its name stands.
	Place Place
}

// Map describes the metric of one map.
type Map struct {
	Help string
	// Metric replaces the name of the map in the name of the metric.
	Metric string
	// Place is where Metric stands.
	Place Place
}

// Defaults.
const (
	DefaultListen   = "127.0.0.1:9935"
	DefaultSeries   = 1000
	defaultInterval = 30 * time.Second
)

// Load reads a file or a folder. The error has the mistakes, each with its place up to some number of them.
func Load(path string) (*Config, error) {
	files, err := filesOf(path)
	if err != nil {
		return nil, err
	}
	r := &reader{config: &Config{Listen: DefaultListen, Labels: map[string]string{}}, set: map[string]string{}, named: map[string]*Program{}, left: maxBytes}
	for _, file := range files {
		text, err := r.read(file)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		r.file(file, text)
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return r.config, nil
}
