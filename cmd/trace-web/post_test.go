package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"trace/lang/serve/wire"
)

// someEvents are what a test sends.
func someEvents(n int) (all []wire.Event) {
	for range n {
		all = append(all, wire.Event{Program: "p", Time: time.Unix(1_700_000_000, 0), Text: "a line"})
	}
	return all
}

// reporting returns an exporter to a receiver, and what it logs.
func reporting(url string, log *strings.Builder) *exporter {
	s := newServer(wire.Client{}, wire.Settings{OTLP: &wire.OTLP{Endpoint: url, Headers: map[string]string{"x-api-key": "secret"}}})
	return newExporter(s, slog.New(slog.NewTextHandler(log, nil)))
}

// A redirect is not followed, whatever it is: neither the body nor a header with a secret goes there. The events count as lost, and the message
// has what to do.
func TestRedirect(t *testing.T) {
	var visits atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL+"/v1/logs", status) }))
		var log strings.Builder
		x := reporting(h.URL, &log)
		x.deliver(t.Context(), someEvents(500))
		if x.sent.Load() != 0 || x.lost.Load() != 500 || x.failed.Load() != 1 || visits.Load() != 0 {
			t.Errorf("%d: %d sent, %d lost, %d requests failed, %d requests elsewhere", status, x.sent.Load(), x.lost.Load(), x.failed.Load(), visits.Load())
		}
		if !strings.Contains(log.String(), elsewhere.URL) || !strings.Contains(log.String(), "write the endpoint there into the configuration") {
			t.Errorf("%d: %s", status, &log)
		}
		h.Close()
	}
}

// partial is the answer of a receiver that has refused some records.
func partial(n uint64, why string) []byte {
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), n)
	inner = protowire.AppendString(protowire.AppendTag(inner, 2, protowire.BytesType), why)
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), inner)
}

// What a receiver has refused of a message that it has taken is lost, and a page is no receiver's answer.
func TestTaken(t *testing.T) {
	for _, test := range []struct {
		kind       string
		reply      []byte
		sent, lost uint64
		log        string
	}{
		{"application/x-protobuf", nil, 5, 0, ""},
		{"", nil, 5, 0, ""},
		{"application/x-protobuf", partial(2, "too old"), 3, 2, "has refused 2 records"},
		{"application/x-protobuf", partial(1<<63, "all"), 0, 5, "has refused"},
		{"application/x-protobuf", []byte("\xff\xff\xff"), 5, 0, ""},
		{"text/html; charset=utf-8", []byte("<html>welcome"), 0, 5, "answers with a page: is it an OTLP receiver?"},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{test.kind}
			w.Write(test.reply)
		}))
		var log strings.Builder
		x := reporting(h.URL, &log)
		ctx, end := context.WithTimeout(t.Context(), 500*time.Millisecond) // less than a second attempt waits
		x.deliver(ctx, someEvents(5))
		if x.sent.Load() != test.sent || x.lost.Load() != test.lost || !strings.Contains(log.String(), test.log) || test.log == "" && log.Len() > 0 {
			t.Errorf("%q %q: %d sent, %d lost\n%s", test.kind, test.reply, x.sent.Load(), x.lost.Load(), &log)
		}
		end()
		h.Close()
	}
}

// What waits at the end is counted, and named.
func TestLeave(t *testing.T) {
	var log strings.Builder
	x := reporting("http://receiver", &log)
	batches := make(chan []wire.Event, maxBatches)
	if x.leave(batches); log.Len() > 0 {
		t.Errorf("without events: %s", &log)
	}
	batches <- someEvents(3)
	batches <- someEvents(4)
	if x.leave(batches); x.lost.Load() != 7 || !strings.Contains(log.String(), "7 events are lost: they waited for http://receiver as trace-web ended") {
		t.Errorf("%d lost, %s", x.lost.Load(), &log)
	}
}

// Whatever a receiver answers, it is read.
func FuzzReply(f *testing.F) {
	f.Add(partial(3, "why"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, reply []byte) { refusedOf(reply) })
}
