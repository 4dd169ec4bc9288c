// Package wire has the messages between the two processes of the service, over a unix socket: trace-web, which talks HTTP, asks, and the
// loader, which has privileges, answers.
//
// A message is its length in four bytes, little-endian, and so many bytes: a request is JSON, an answer is a byte 0 and a body, or a byte 1 and
// the text of an error. A body is JSON, or what its type makes of it (encoding.BinaryMarshaler). A connection carries one request and its
// answer; an answer of events has many messages, until one side closes. Both sides bound what they read, so that neither can exhaust the other.
package wire

import (
	"cmp"
	"context"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Limits of messages in bytes, of connections whose request has not arrived, and of how long one side waits for the other.
const (
	MaxRequest = 4 << 10
	MaxAnswer  = 64 << 20
	maxUnread  = 32
	patience   = 10 * time.Second
)

// What is asked.
const (
	GetSettings = "settings"
	GetMetrics  = "metrics"
	GetReady    = "ready"
	GetProfile  = "profile"
	GetEvents   = "events"
	GetPrograms = "programs"
	DoReload    = "reload"
)

// limits are how many requests of each kind are answered at once. None takes the room of another kind: a profile takes minutes. One reader gets
// the events, as each event is sent once.
var limits = map[string]int{GetSettings: 16, GetReady: 16, GetPrograms: 4, GetMetrics: 4, GetProfile: 4, GetEvents: 1, DoReload: 1}

// others limits all other requests, of another version.
const others = 4

// Request is what trace-web asks. Program and Seconds are of a profile.
type Request struct {
	Do      string `json:"do"`
	Program string `json:"program,omitempty"`
	Seconds int    `json:"seconds,omitempty"`
}

// Settings are the parts of the configuration that trace-web needs.
type Settings struct {
	Listen       string            `json:"listen"`
	WebConfig    string            `json:"web_config,omitempty"`
	ReloadByHTTP bool              `json:"reload_by_http,omitempty"`
	Pprof        string            `json:"pprof,omitempty"`
	OTLP         *OTLP             `json:"otlp,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Version      string            `json:"version"`
	Host         string            `json:"host"`
	// User is as whom the loader runs.
	User int `json:"user"`
}

// OTLP is where metrics and events are sent.
type OTLP struct {
	Endpoint string            `json:"endpoint"`
	Interval time.Duration     `json:"interval_ns"`
	Headers  map[string]string `json:"headers,omitempty"`
}

// Ready lists the programs that are not attached, with their reason, and what each of the others is without.
type Ready struct {
	Waiting map[string]string   `json:"waiting"`
	LeftOut map[string][]string `json:"left_out,omitempty"`
}

// Event is what a program printed or selected: a log record.
type Event struct {
	Program string          `json:"program"`
	Probe   string          `json:"probe,omitempty"`
	Time    time.Time       `json:"time"`
	Text    string          `json:"text,omitempty"`
	Fields  json.RawMessage `json:"fields,omitempty"`
	// Lost is how many events there was no room for before this one.
	Lost uint64 `json:"lost,omitempty"`
}

// Names of the metrics that trace-web adds to the loader's. All are counters.
const (
	OTLPEvents      = "trace_otlp_events_total"
	OTLPLost        = "trace_otlp_lost_total"
	OTLPFailed      = "trace_otlp_failed_requests_total"
	ScrapeConflicts = "trace_scrape_conflicts_total"
)

// What an answer begins with.
const (
	isBody byte = iota
	isError
)

// write sends the parts of a message of at most so many bytes.
func write(w io.Writer, limit int, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > limit {
		return fmt.Errorf("a message of %d bytes is too long, at most %d are sent", size, limit)
	}
	message := net.Buffers(append([][]byte{binary.LittleEndian.AppendUint32(nil, uint32(size))}, parts...))
	_, err := message.WriteTo(w)
	return err
}

// read reads a message of at most so many bytes.
func read(r io.Reader, limit int) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("a message of %d bytes is too long, at most %d are read", n, limit)
	}
	// The other side may announce more than it sends: memory grows with what arrives.
	data, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(data) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return data, err
}

// readRequest reads a request.
func readRequest(r io.Reader) (q Request, err error) {
	data, err := read(r, MaxRequest)
	if err == nil {
		err = json.Unmarshal(data, &q)
	}
	return q, err
}

// answered is an error that the loader has answered.
type answered struct{ error }

// readAnswer reads the body of an answer, or the error.
func readAnswer(r io.Reader) (body []byte, err error) {
	data, err := read(r, MaxAnswer)
	switch {
	case err != nil:
		return nil, err
	case len(data) == 0 || data[0] > isError:
		return nil, errors.New("this is no answer: are trace and trace-web of one version?")
	case data[0] == isError:
		return nil, answered{errors.New(string(data[1:]))}
	}
	return data[1:], nil
}

// Client asks the loader at a socket.
type Client struct{ Path string }

// Ask sends a request and returns the body of the answer.
func Ask[T any](ctx context.Context, c Client, r Request) (body T, err error) {
	err = c.each(ctx, r, func(raw []byte) error {
		if err := decode(raw, &body); err != nil {
			return fmt.Errorf("loader: %w", err)
		}
		return errDone
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return body, err
}

// encode returns the bytes of a body.
func encode(body any) ([]byte, error) {
	if b, is := body.(encoding.BinaryMarshaler); is {
		return b.MarshalBinary()
	}
	return json.Marshal(body)
}

// decode reads a body.
func decode(raw []byte, body any) error {
	if b, is := body.(encoding.BinaryUnmarshaler); is {
		return b.UnmarshalBinary(raw)
	}
	return json.Unmarshal(raw, body)
}

// errDone ends the reading of answers.
var errDone = errors.New("done")

// Events calls take with all that the loader sends, until ctx ends or the connection breaks.
func (c Client) Events(ctx context.Context, take func([]Event) error) error {
	return c.each(ctx, Request{Do: GetEvents}, func(raw []byte) error {
		events, err := decodeEvents(raw)
		if err != nil {
			return err
		}
		return take(events)
	})
}

func decodeEvents(raw []byte) (events []Event, err error) {
	return events, json.Unmarshal(raw, &events)
}

// each calls take with the body of each answer until it returns an error.
func (c Client) each(ctx context.Context, r Request, take func([]byte) error) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Path)
	if err != nil {
		return fmt.Errorf("loader: %w: is `trace serve` running?", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })()
	request, err := json.Marshal(r)
	if err == nil {
		err = write(conn, MaxRequest, request)
	}
	if err != nil {
		return fmt.Errorf("loader: %w", err)
	}
	for {
		body, err := readAnswer(conn)
		if a := (answered{}); errors.As(err, &a) {
			return a.error
		}
		if err != nil {
			return fmt.Errorf("loader: %w", errors.Join(ctx.Err(), err))
		}
		if err := take(body); err != nil {
			return err
		}
	}
}

// Peer is the process at the other end of a connection, when that was made.
type Peer struct{ PID, UID int }

// Anyone allows all whom the permissions of the socket admit.
func Anyone(Peer) error { return nil }

// Handler answers requests. Its methods may be called at once.
type Handler interface {
	// Answer returns the body for a request, or the error that the other side gets.
	Answer(ctx context.Context, r Request) (any, error)
	// Events sends events until ctx ends or send fails.
	Events(ctx context.Context, send func([]Event) error) error
}

// Serve answers requests until ctx ends, of those processes that allowed returns nil for.
func Serve(ctx context.Context, l *net.UnixListener, allowed func(Peer) error, h Handler) error {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	s := &service{handler: h, allowed: allowed, unread: make(room, maxUnread), others: make(room, others), rooms: map[string]room{}}
	for kind, most := range limits {
		s.rooms[kind] = make(room, most)
	}
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !s.unread.enter() { // it sees a closed connection, and asks again
			conn.Close()
			continue
		}
		go func() {
			defer conn.Close()
			s.serve(ctx, conn)
		}()
	}
}

// room has a place for each of some requests.
type room chan struct{}

// enter takes a place, and reports whether there was one.
func (r room) enter() bool {
	select {
	case r <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r room) leave() { <-r }

// service answers requests.
type service struct {
	handler        Handler
	allowed        func(Peer) error
	unread, others room
	rooms          map[string]room
}

// request reads the request of a process that may ask. ok is false if there is none: the other side knows why.
func (s *service) request(conn *net.UnixConn) (r Request, ok bool) {
	defer s.unread.leave()
	p, err := peer(conn)
	if err == nil {
		err = s.allowed(p)
	}
	if err != nil {
		send(conn, nil, err)
		conn.SetReadDeadline(time.Now().Add(hearing)) // it may be writing
		io.Copy(io.Discard, io.LimitReader(conn, MaxRequest))
		return r, false
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	if r, err = readRequest(conn); err != nil {
		send(conn, nil, fmt.Errorf("request: %w", err))
	}
	return r, err == nil
}

// hearing is how long a process that may not ask has to read why.
const hearing = 100 * time.Millisecond

// serve answers the request of a connection. What fails has no one to report to: the other side sees it itself.
func (s *service) serve(ctx context.Context, conn *net.UnixConn) {
	r, ok := s.request(conn)
	if !ok {
		return
	}
	room := s.rooms[r.Do]
	if room == nil {
		room = s.others
	}
	if !room.enter() {
		send(conn, nil, fmt.Errorf("the loader answers %d requests for %s already: ask again later", cap(room), cmp.Or(r.Do, "nothing")))
		return
	}
	defer room.leave()
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() { // a reader that goes away ends a long answer
		conn.SetReadDeadline(time.Time{})
		io.Copy(io.Discard, io.LimitReader(conn, MaxRequest))
		end()
	}()
	if r.Do == GetEvents {
		s.handler.Events(ctx, func(e []Event) error { return send(conn, e, nil) })
		return
	}
	body, err := s.handler.Answer(ctx, r)
	send(conn, body, err)
}

// send sends a body or an error. The other side has to read it soon.
func send(conn net.Conn, body any, err error) error {
	kind, data := isBody, []byte(nil)
	if err == nil {
		data, err = encode(body)
	}
	if err != nil {
		kind, data = isError, []byte(err.Error())
	}
	conn.SetWriteDeadline(time.Now().Add(patience))
	return write(conn, MaxAnswer, []byte{kind}, data)
}
