package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"trace/lang/metrics"
	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
)

// server answers scrapers with what the loader answers.
type server struct {
	loader   wire.Client
	settings wire.Settings
	exporter *exporter // nil without otlp
	log      *slog.Logger
	// conflicts counts scrapes without some metric.
	conflicts atomic.Uint64
}

func newServer(loader wire.Client, settings wire.Settings) *server {
	return &server{loader: loader, settings: settings, log: slog.Default()}
}

// How many requests of each kind are answered at once. None takes the room of another kind. Scrapes share one question to the loader.
const (
	maxScrapes  = 8
	maxQuick    = 20
	maxProfiles = 4
	maxReloads  = 1
)

func (s *server) handler() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /metrics", bounded(s.metrics(), maxScrapes, 2*patience))
	m.HandleFunc("GET /{$}", s.index)
	m.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	m.Handle("GET /-/ready", bounded(http.HandlerFunc(s.ready), maxQuick, patience))
	m.Handle("POST /-/reload", bounded(http.HandlerFunc(s.reload), maxReloads, maxReload))
	m.Handle("GET /profile", bounded(http.HandlerFunc(s.profile), maxProfiles, maxAnswer))
	return http.MaxBytesHandler(m, maxBody)
}

// bounded answers so many requests at once, each within a time, in which the answer must have been read, too.
func bounded(h http.Handler, most int, within time.Duration) http.Handler {
	room := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		default:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%s is asked %d times already: ask again later", r.URL.Path, most))
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within)) // a recorder of tests has none
		ctx, end := context.WithTimeout(r.Context(), within)
		defer end()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// metrics answers with all metrics that can be shown together. Others are counted and logged.
func (s *server) metrics() http.Handler {
	all := metrics.Gatherer(func() ([]family.Family, error) { return s.families(context.Background()) })
	shown := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		shown, err := all.Gather()
		if err != nil && len(shown) > 0 {
			s.conflicts.Add(1)
		}
		return shown, err
	})
	text := promhttp.HandlerFor(shown, promhttp.HandlerOpts{
		EnableOpenMetrics: true, CoalesceGather: true, DisableCompression: true,
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	})
	return http.TimeoutHandler(compressed(text), patience, "the metrics took longer than "+patience.String()+"\n")
}

// compressed compresses answers if that is asked for, as Prometheus does, in a third of the time that promhttp needs.
func compressed(h http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // the options are wrong
	}
	return wrap(h)
}

// families asks for all metrics.
func (s *server) families(ctx context.Context) ([]family.Family, error) {
	ctx, end := context.WithTimeout(ctx, patience)
	defer end()
	all, err := wire.Ask[family.Set](ctx, s.loader, wire.Request{Do: wire.GetMetrics})
	if s.exporter != nil {
		all = append(all, s.exporter.families()...)
	}
	return append(all, counter(wire.ScrapeConflicts, "Scrapes without a metric that has a name or labels of another one.", s.conflicts.Load())), err
}

func (s *server) index(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "trace %s on %s\n\n/metrics\n/profile?program=NAME&seconds=N\n/-/ready\n/-/healthy\n", s.settings.Version, s.settings.Host)
}

// ready lists the programs that are not attached, each with the reason, and what the others are without. A service without some of its probes is
// ready: its metrics are the ones that this machine has.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ready, err := wire.Ask[wire.Ready](r.Context(), s.loader, wire.Request{Do: wire.GetReady})
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(ready.Waiting)) {
		lines = append(lines, fmt.Sprintf("%s: %s", name, ready.Waiting[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(ready.LeftOut)) {
		for _, why := range ready.LeftOut[name] {
			lines = append(lines, fmt.Sprintf("%s: left out: %s", name, why))
		}
	}
	if text := strings.Join(lines, "\n"); len(ready.Waiting) > 0 {
		refuse(w, http.StatusServiceUnavailable, text)
	} else {
		fmt.Fprintln(w, strings.TrimSuffix("ready\n"+text, "\n"))
	}
}

func (s *server) reload(w http.ResponseWriter, r *http.Request) {
	if !s.settings.ReloadByHTTP {
		refuse(w, http.StatusForbidden, "reload_by_http is not set in the configuration")
		return
	}
	if _, err := wire.Ask[struct{}](r.Context(), s.loader, wire.Request{Do: wire.DoReload}); err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	fmt.Fprintln(w, "reloaded")
}

// maxSeconds keeps a profile within the time of an answer.
const maxSeconds = 300

// profile answers with what the stacks of a program have counted meanwhile, in pprof's form.
func (s *server) profile(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.FormValue("seconds"))
	program := r.FormValue("program")
	if err != nil || seconds < 1 || seconds > maxSeconds || program == "" {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("write /profile?program=NAME&seconds=N, with N from 1 to %d", maxSeconds))
		return
	}
	data, err := wire.Ask[[]byte](r.Context(), s.loader, wire.Request{Do: wire.GetProfile, Program: program, Seconds: seconds})
	if err != nil {
		refuse(w, http.StatusNotFound, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(data)
}

// refuse answers with an error. Texts of programs and processes may stand in it, so it is plain text.
func refuse(w http.ResponseWriter, status int, text string) { http.Error(w, text, status) }
