package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trace/lang/metrics/family"
	"trace/lang/serve/wire"
)

// patient makes profiles until the other side goes away.
type patient struct{ loader }

func (p patient) Answer(ctx context.Context, r wire.Request) (any, error) {
	if r.Do == wire.GetProfile {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.loader.Answer(ctx, r)
}

// Open profiles take the room of nothing else, and beyond some they are refused at once.
func TestProfilesLeaveRoom(t *testing.T) {
	s := newServer(answering(t, patient{loader{families: someFamilies, asked: &atomic.Int64{}}}), wire.Settings{})
	h := httptest.NewServer(s.handler())
	defer h.Close()
	ctx, end := context.WithCancel(t.Context())
	var refused atomic.Int64
	var over sync.WaitGroup
	for range 64 {
		over.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/profile?program=stacks&seconds=300", nil)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return // at the end
			}
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); answer.StatusCode == http.StatusServiceUnavailable && string(text) == "/profile is asked 4 times already: ask again later\n" {
				refused.Add(1)
			}
		})
	}
	for began := time.Now(); refused.Load() < 64-maxProfiles; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("%d are refused", refused.Load())
		}
	}
	for _, path := range []string{"/metrics", "/-/ready", "/-/healthy", "/"} {
		if status, text := get(s, "GET", path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
		r, err := http.Get(h.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s beside 64 profiles: %s", path, r.Status)
		}
	}
	end()
	over.Wait()
}

// Who does not read an answer keeps its room for a while only.
func TestSlowReader(t *testing.T) {
	written := make(chan error, 1)
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(w, zeros{})
		written <- err
	})
	h := httptest.NewServer(bounded(endless, 1, 300*time.Millisecond))
	defer h.Close()
	conn, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case err := <-written:
		if err == nil {
			t.Error("an endless answer has ended")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the answer is still being written")
	}
}

// Many connections that ask nothing keep nobody out, whether they have asked before or not.
func TestManyConnections(t *testing.T) {
	h := httptest.NewUnstartedServer(serving(t, loader{families: someFamilies}).handler())
	c := newCrowd()
	var most atomic.Int64
	h.Config.ConnState = func(conn net.Conn, s http.ConnState) {
		c.changed(conn, s)
		c.mu.Lock()
		defer c.mu.Unlock()
		most.Store(max(most.Load(), int64(len(c.all))))
	}
	h.Start()
	defer h.Close()
	var open []net.Conn
	for i := range 2 * maxConnections {
		conn, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			fmt.Fprint(conn, "GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
			io.ReadFull(conn, make([]byte, 12))
		}
		open = append(open, conn)
	}
	r, err := http.Get(h.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK || most.Load() != maxConnections {
		t.Errorf("%s, %d connections", r.Status, most.Load())
	}
	open[0].SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, open[0]); err != nil {
		t.Errorf("the oldest is not closed: %v", err)
	}
	for _, conn := range open {
		conn.Close()
	}
}

// A metric that cannot be shown takes no other one along. It is counted, and named in the log.
func TestConflict(t *testing.T) {
	wrong := family.Family{Name: "trace_nvme_depth", Kind: family.Counter, Series: []family.Series{{}}}
	s := serving(t, loader{families: append(slices.Clone(someFamilies), wrong)})
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	get(s, "GET", "/metrics")
	status, text := get(s, "GET", "/metrics")
	if status != http.StatusOK || !strings.Contains(text, "trace_nvme_commands_total{") || strings.Contains(text, "trace_nvme_depth") || !strings.Contains(text, "\ntrace_scrape_conflicts_total 1\n") {
		t.Errorf("%d %s", status, text)
	}
	if !strings.Contains(log.String(), "trace_nvme_depth is the name of a gauge and of a counter") {
		t.Error(log.String())
	}
}

// A user that other programs have, too, is warned of.
func TestShared(t *testing.T) {
	for _, test := range []struct {
		user, loader int
		want         string
	}{{0, 0, "runs as root"}, {65534, 0, "runs as nobody"}, {1000, 1000, "runs as user 1000, as the loader does"}, {62000, 0, ""}, {62000, 62001, ""}} {
		got := shared(test.user, test.loader)
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") || got != "" && !strings.Contains(got, "useradd --system trace-web") {
			t.Errorf("%v: %s", test, got)
		}
	}
}
