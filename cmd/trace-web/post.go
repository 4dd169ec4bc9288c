package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// errElsewhere means that a receiver names another place.
var errElsewhere = errors.New("write the endpoint there into the configuration, without /v1/metrics and /v1/logs")

// stay follows no redirect: a POST would become a GET without its body, which may be answered with success, and headers with secrets would go to
// whoever is there.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// post sends a message. It returns how many of its records the receiver has refused, and an error unless it has taken the others.
func (x *exporter) post(ctx context.Context, path string, m proto.Message) (refused uint64, err error) {
	defer func() {
		if err != nil {
			x.failed.Add(1)
		}
	}()
	body, err := packed(m)
	if err != nil {
		return 0, err
	}
	url := x.otlp.Endpoint + path
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return 0, err
	}
	for name, text := range x.otlp.Headers {
		r.Header.Set(name, text)
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("Content-Encoding", "gzip")
	answer, err := x.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxReply))
	if err := taken(url, answer, text); err != nil {
		return 0, err
	}
	refused, why := refusedOf(text)
	if refused > 0 || why != "" {
		x.log.Warn(fmt.Sprintf("%s has refused %d records: %q", url, refused, clip(why)))
	}
	return refused, nil
}

// maxReply is how much of an answer is read.
const maxReply = 4 << 10

// packed returns the bytes of a message, with gzip.
func packed(m proto.Message) (*bytes.Buffer, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	z := gzip.NewWriter(&body)
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	return &body, z.Close()
}

// taken returns nil if by its answer the receiver has the message. A page is no answer of a receiver.
func taken(url string, answer *http.Response, text []byte) error {
	switch {
	case answer.StatusCode/100 == 3:
		return fmt.Errorf("%s answers %s, to %q: %w", url, answer.Status, clip(answer.Header.Get("Location")), errElsewhere)
	case answer.StatusCode/100 != 2:
		return fmt.Errorf("%s answers %s: %q", url, answer.Status, clip(string(text)))
	case strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html"):
		return fmt.Errorf("%s answers with a page: is it an OTLP receiver?", url)
	}
	return nil
}

// clip returns the beginning of a text for a message.
func clip(text string) string { return text[:min(len(text), 200)] }

// refusedOf reads how many records a receiver has refused of a message that it has taken otherwise, and why: ExportLogsServiceResponse and
// ExportMetricsServiceResponse have a message 1 with a number 1 and a text 2 (opentelemetry-proto/collector). Their Go package links gRPC. What
// cannot be read means that all were taken.
func refusedOf(reply []byte) (n uint64, why string) {
	fields(reply, func(number protowire.Number, _ uint64, partial []byte) {
		if number == 1 {
			fields(partial, func(number protowire.Number, v uint64, text []byte) {
				switch number {
				case 1:
					n = v
				case 2:
					why = string(text)
				}
			})
		}
	})
	return n, why
}

// fields calls f with the numbers and the bytes among the fields of a message, up to one that cannot be read.
func fields(message []byte, f func(number protowire.Number, v uint64, data []byte)) {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return
		}
		message = message[size:]
		var v uint64
		var data []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			data, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return
		}
		f(number, v, data)
		message = message[size:]
	}
}
