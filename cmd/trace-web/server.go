package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"trace/lang/metrics"
	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
)

// server answers scrapers with what the loader answers.
type server struct {
	loader   wire.Client
	settings wire.Settings
	exporter *exporter // nil without otlp
}

func newServer(loader wire.Client, settings wire.Settings) *server {
	return &server{loader: loader, settings: settings}
}

// maxScrapes is how many scrapes are answered at once. They share one question to the loader.
const maxScrapes = 20

func (s *server) handler() http.Handler {
	m := http.NewServeMux()
	all := metrics.Gatherer(func() ([]family.Family, error) { return s.families(context.Background()) })
	text := promhttp.HandlerFor(all, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, CoalesceGather: true, DisableCompression: true})
	m.Handle("GET /metrics", http.TimeoutHandler(compressed(text), patience, "the metrics took longer than "+patience.String()+"\n"))
	m.HandleFunc("GET /{$}", s.index)
	m.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	m.HandleFunc("GET /-/ready", s.ready)
	m.HandleFunc("POST /-/reload", s.reload)
	m.HandleFunc("GET /profile", s.profile)
	return http.MaxBytesHandler(m, maxBody)
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
	return all, err
}

func (s *server) index(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "trace %s on %s\n\n/metrics\n/profile?program=NAME&seconds=N\n/-/ready\n/-/healthy\n", s.settings.Version, s.settings.Host)
}

// ready lists the programs that are not attached, each with the reason.
func (s *server) ready(w http.ResponseWriter, r *http.Request) {
	ready, err := wire.Ask[wire.Ready](r.Context(), s.loader, wire.Request{Do: wire.GetReady})
	switch {
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	case len(ready.Waiting) > 0:
		text := ""
		for _, name := range slices.Sorted(maps.Keys(ready.Waiting)) {
			text += fmt.Sprintf("%s: %s\n", name, ready.Waiting[name])
		}
		refuse(w, http.StatusServiceUnavailable, text[:len(text)-1])
	default:
		fmt.Fprintln(w, "ready")
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
