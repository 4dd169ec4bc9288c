// Command trace-web shows over HTTP what the programs of `trace serve` count: metrics, profiles, whether all is well. It has no privileges:
// it asks the loader, which has them, over a unix socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/sys/unix"

	"trace/lang/serve/wire"
)

func main() {
	socket := flag.String("socket", "/run/trace/loader.sock", "the socket of the loader, trace serve")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "trace-web shows over HTTP what the programs of `trace serve` count. trace serve starts it, or systemd does.\n\n")
		flag.PrintDefaults()
	}
	confined := confine() // before anything is read that others may not see
	flag.Parse()
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer end()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if confined != nil {
		log.Warn("other processes of this user may read this one: " + confined.Error())
	}
	if err := run(ctx, wire.Client{Path: *socket}, log); err != nil {
		log.Error(err.Error())
		os.Exit(1)
	}
}

// run serves until ctx ends or the settings change: whoever started trace-web starts it again then.
func run(ctx context.Context, loader wire.Client, log *slog.Logger) error {
	settings, err := waitForSettings(ctx, loader)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if why := shared(os.Getuid(), settings.User); why != "" {
		log.Warn(why)
	}
	s := newServer(loader, settings)
	s.log = log
	var all sync.WaitGroup
	begin := func(f func() error) {
		all.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				end(err)
			}
		})
	}
	if settings.OTLP != nil {
		s.exporter = newExporter(s, log)
		begin(func() error { return s.exporter.metrics(ctx) })
		begin(func() error { return s.exporter.events(ctx) })
	}
	begin(func() error { return s.listen(ctx, log) })
	begin(func() error { return s.watch(ctx) })
	if settings.Pprof != "" {
		begin(func() error { return profiles(ctx, settings.Pprof) })
	}
	<-ctx.Done()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, errChanged) {
		return err
	}
	return nil
}

// waitForSettings asks until the loader answers: systemd may start both at once.
func waitForSettings(ctx context.Context, loader wire.Client) (settings wire.Settings, err error) {
	for range 50 {
		if settings, err = wire.Ask[wire.Settings](ctx, loader, wire.Request{Do: wire.GetSettings}); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return settings, err
		case <-time.After(200 * time.Millisecond):
		}
	}
	return settings, err
}

// errChanged ends the process.
var errChanged = errors.New("the settings have changed")

// watch ends when the loader has other settings.
func (s *server) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Second):
		}
		now, err := wire.Ask[wire.Settings](ctx, s.loader, wire.Request{Do: wire.GetSettings})
		if err == nil && !reflect.DeepEqual(now, s.settings) {
			return errChanged
		}
	}
}

// Limits of HTTP: a scraper that hangs, or sends without end, keeps nothing busy for long.
const (
	maxHeader = 64 << 10
	maxBody   = 64 << 10
	patience  = 10 * time.Second
	maxReload = time.Minute
	maxAnswer = 6 * time.Minute // a profile takes as long as it is asked for
)

// listen serves HTTP at the address of the settings until ctx ends.
func (s *server) listen(ctx context.Context, log *slog.Logger) error {
	h := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: patience, ReadTimeout: patience, WriteTimeout: maxAnswer, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		ConnState: newCrowd().changed, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	defer context.AfterFunc(ctx, func() {
		ctx, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		h.Shutdown(ctx)
	})()
	addresses, activated := []string{s.settings.Listen}, false
	flags := &web.FlagConfig{WebListenAddresses: &addresses, WebSystemdSocket: &activated, WebConfigFile: &s.settings.WebConfig}
	file, isFile := strings.CutPrefix(s.settings.Listen, "unix:")
	if !isFile {
		return closed(web.ListenAndServe(h, flags, log))
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", file)
	if err != nil {
		return err
	}
	return closed(web.Serve(l, h, flags, log))
}

// profiles serves profiles of this process, apart from what scrapers see.
func profiles(ctx context.Context, address string) error {
	h := &http.Server{Addr: address, Handler: http.DefaultServeMux, ReadTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader, ConnState: newCrowd().changed}
	defer context.AfterFunc(ctx, func() { h.Close() })()
	return closed(h.ListenAndServe())
}

// closed returns an error unless it means that the server was closed.
func closed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
