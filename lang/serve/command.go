//go:build linux

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"trace"
	"trace/lang/serve/wire"
)

// Settings of the command `trace serve`.
type Settings struct {
	Options
	// Socket is where another service's web process asks; "": the web process is started.
	Socket string
	// Check prints what a reload would change, and ends.
	Check bool
}

// Main is the command: it runs the service until ctx ends.
func Main(ctx context.Context, o Settings, out io.Writer) error {
	o.Log = cmp.Or(o.Log, slog.Default())
	s, err := New(ctx, o.Options)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.Check {
		return s.check(ctx, o.Socket, out)
	}
	return s.serve(ctx, o.Socket)
}

// goOn takes over what an earlier process has counted. If that fails, all begins at 0, as created timestamps show.
func (s *Service) goOn() {
	state, err := takeState()
	if err == nil && state != nil {
		err = s.Restore(state)
	}
	if err != nil {
		s.options.Log.Warn("all counters begin at 0: " + err.Error())
	}
}

// keep leaves what was counted to the next process.
func (s *Service) keep() {
	state, err := s.State()
	if err == nil {
		err = keepState(state)
	}
	if err != nil {
		s.options.Log.Warn("counters will begin at 0: " + err.Error())
	}
}

// check prints what a loader that runs would change if it read this configuration.
func (s *Service) check(ctx context.Context, socket string, out io.Writer) error {
	running := map[string]string{}
	if socket != "" {
		var err error
		if running, err = wire.Ask[map[string]string](ctx, wire.Client{Path: socket}, wire.Request{Do: wire.GetPrograms}); err != nil {
			return err
		}
	}
	for _, p := range s.programs {
		what := "unchanged"
		switch before, is := running[p.spec.Name]; {
		case !is:
			what = "new"
		case before != p.identity:
			what = "changed: it starts at 0"
		}
		delete(running, p.spec.Name)
		fmt.Fprintf(out, "%s: %s\n", p.spec.Name, what)
		if err := s.checkHere(p, out); err != nil {
			return err
		}
	}
	for name := range running {
		fmt.Fprintf(out, "%s: removed\n", name)
	}
	return nil
}

// checkHere prints which probes of a program this machine lacks. That is no mistake: a configuration is also checked where it will not run. Nothing is
// attached, so the kernel may refuse more.
func (s *Service) checkHere(p *program, out io.Writer) error {
	for _, name := range p.compiled.Probes() {
		found, err := s.host.Available(name)
		if err != nil {
			return err
		}
		for _, f := range found {
			if errors.Is(f.Err, trace.ErrUnsupported) {
				fmt.Fprintf(out, "%s: here, %v\n", p.spec.Name, f.Err)
			}
		}
	}
	return nil
}

// serve runs the programs, and answers until ctx ends.
func (s *Service) serve(ctx context.Context, socket string) (err error) {
	l, remove, web, err := listen(socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	s.goOn() // now that nothing can fail that would lose it
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// Whom the permissions of the socket admit may ask another service's loader.
	process, allowed := &webProcess{}, wire.Anyone
	if web != "" {
		allowed = process.allows
	}
	var all sync.WaitGroup
	all.Go(func() { s.Run(ctx) })
	all.Go(func() {
		if err := wire.Serve(ctx, l, allowed, s); err != nil {
			end(err)
		}
	})
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP) // from now on, it does not end the process
	defer signal.Stop(hangup)
	all.Go(func() { s.watch(ctx, hangup) })
	all.Go(func() { watchdog(ctx) })
	if web != "" {
		all.Go(func() { s.keepWeb(ctx, process, web, l.Addr().String()) })
	}
	daemon.SdNotify(false, daemon.SdNotifyReady)
	<-ctx.Done()
	daemon.SdNotify(false, daemon.SdNotifyStopping)
	all.Wait()
	s.keep()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// listen opens the socket. web is the web process to start, or "".
func listen(socket string) (l *net.UnixListener, remove func() error, web string, err error) {
	if socket != "" {
		l, err = socketAt(socket, 0o660)
		return l, func() error { return nil }, "", err
	}
	if web, err = findWeb(); err != nil {
		return nil, nil, "", err
	}
	l, remove, err = privateSocket(socketFolders()...)
	return l, remove, web, err
}

// settle is how long the files must rest before they are read: a ConfigMap is changed in several steps. longest is how long a change waits if they
// never rest.
const (
	settle  = 300 * time.Millisecond
	longest = 10 * settle
)

// watch reloads after SIGHUP, and when a file beside the configuration changes.
func (s *Service) watch(ctx context.Context, hangup <-chan os.Signal) {
	var changed chan fsnotify.Event
	var missed chan error
	w, folder, err := s.watcher()
	if err != nil {
		s.options.Log.Warn("changes of the configuration are not seen: " + err.Error() + ": send SIGHUP after one")
	} else {
		defer w.Close()
		changed, missed = w.Events, w.Errors
	}
	rest := time.NewTimer(settle)
	rest.Stop()
	var first time.Time // when the first change came that waits
	for {
		seen := false
		select {
		case <-ctx.Done():
			return
		case e := <-changed:
			seen = s.concerns(e, folder)
		case <-missed: // there were too many at once
			seen = true
		case <-rest.C:
			first = time.Time{}
			s.reload(ctx)
		case <-hangup:
			s.reload(ctx)
		}
		if seen {
			if first.IsZero() {
				first = time.Now()
			}
			rest.Reset(max(0, min(settle, longest-time.Since(first))))
		}
	}
}

// watcher watches the folder of the configuration: a file in it may be replaced, as editors and Kubernetes do.
func (s *Service) watcher() (w *fsnotify.Watcher, folder string, err error) {
	if w, err = fsnotify.NewWatcher(); err != nil {
		return nil, "", err
	}
	folder = s.options.Config
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		folder = filepath.Dir(folder)
	}
	if err := w.Add(folder); err != nil {
		return nil, "", errors.Join(err, w.Close())
	}
	return w, folder, nil
}

// concerns reports whether a change in a folder is of a file of the configuration. Kubernetes changes only the link ..data, to which all files of a
// ConfigMap are links. Other files may belong to others: /tmp is a folder, too.
func (s *Service) concerns(e fsnotify.Event, folder string) bool {
	programs, _ := s.now()
	name := filepath.Base(e.Name)
	ofProgram := slices.ContainsFunc(programs, func(p *program) bool { return filepath.Base(p.spec.Text.Name) == name })
	ofFolder := folder == s.options.Config && filepath.Ext(name) == ".yaml"
	return !e.Has(fsnotify.Chmod) && (ofProgram || ofFolder || name == filepath.Base(s.options.Config) || name == "..data")
}

// reload reads the configuration again. systemd waits for its end (Type=notify-reload).
func (s *Service) reload(ctx context.Context) {
	daemon.SdNotify(false, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
	if err := s.Reload(ctx); err != nil {
		s.options.Log.Error("the configuration stays as it was: " + err.Error())
	} else {
		s.options.Log.Info("configuration read")
	}
	daemon.SdNotify(false, daemon.SdNotifyReady)
}

// watchdog reports to systemd that the process lives, if systemd wants to know, twice as often as it must: sd_watchdog_enabled(3).
func watchdog(ctx context.Context) {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil || period == 0 {
		return
	}
	for tick := time.NewTicker(period / 2); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		}
	}
}
