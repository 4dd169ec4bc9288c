package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// echo answers with the request. A program called "slow" takes until the other side goes away.
type echo struct{ gone chan struct{} }

func (e echo) Answer(ctx context.Context, r Request) (any, error) {
	switch r.Program {
	case "slow":
		<-ctx.Done()
		close(e.gone)
		return nil, ctx.Err()
	case "none":
		return nil, errors.New("no program none")
	case "binary":
		return reversed("abc"), nil
	case "huge":
		return strings.Repeat("x", MaxAnswer), nil
	}
	return r, nil
}

// reversed has a form of its own.
type reversed string

func (r reversed) MarshalBinary() ([]byte, error) { return []byte{r[2], r[1], r[0]}, nil }

func (r *reversed) UnmarshalBinary(data []byte) error {
	if len(data) != 3 {
		return errors.New("it is too short")
	}
	*r = reversed([]byte{data[2], data[1], data[0]})
	return nil
}

func (e echo) Events(ctx context.Context, send func([]Event) error) error {
	for ctx.Err() == nil {
		if err := send([]Event{{Program: "p", Text: "a line"}}); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func listen(t *testing.T, allowed func(Peer) error, h Handler) Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() {
		if err := Serve(ctx, l, allowed, h); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { end(); over.Wait() })
	return Client{path}
}

func TestAsk(t *testing.T) {
	c := listen(t, Anyone, echo{})
	got, err := Ask[Request](t.Context(), c, Request{Do: GetProfile, Program: "p", Seconds: 3})
	if err != nil || got != (Request{GetProfile, "p", 3}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Ask[Request](t.Context(), c, Request{Program: "none"}); err == nil || err.Error() != "no program none" {
		t.Error(err)
	}
	if _, err := Ask[Request](t.Context(), c, Request{Program: strings.Repeat("p", MaxRequest)}); err == nil || err.Error() != "loader: a message of 4118 bytes is too long, at most 4096 are sent" {
		t.Error(err)
	}
	if got, err := Ask[reversed](t.Context(), c, Request{Program: "binary"}); got != "abc" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Ask[reversed](t.Context(), c, Request{}); err == nil || err.Error() != "loader: it is too short" {
		t.Error(err)
	}
	if _, err := Ask[int](t.Context(), c, Request{}); err == nil || !strings.HasPrefix(err.Error(), "loader: json: cannot unmarshal object") {
		t.Error(err)
	}
	n := 0
	err = c.Events(t.Context(), func(e []Event) error {
		if n++; n == 3 {
			return io.EOF
		}
		return nil
	})
	if n != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("%d events, %v", n, err)
	}
}

// A side that goes away ends what the other one does for it.
func TestGone(t *testing.T) {
	h := echo{make(chan struct{})}
	c := listen(t, Anyone, h)
	ctx, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	if _, err := Ask[Request](ctx, c, Request{Program: "slow"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-h.gone
	if _, err := Ask[Request](t.Context(), Client{"/nowhere"}, Request{}); err == nil || !strings.HasPrefix(err.Error(), "loader: ") || !strings.HasSuffix(err.Error(), ": is `trace serve` running?") {
		t.Error(err)
	}
}

// Who may not ask gets to know it, and is not listened to.
func TestStrangers(t *testing.T) {
	c := listen(t, func(p Peer) error { return fmt.Errorf("process %d of user %d may not ask", p.PID, p.UID) }, echo{})
	for range 10 {
		if _, err := Ask[Request](t.Context(), c, Request{}); err == nil || err.Error() != fmt.Sprintf("process %d of user %d may not ask", os.Getpid(), os.Getuid()) {
			t.Fatal(err)
		}
	}
}

// What is wrong or too long ends the connection, and nothing else.
func TestBroken(t *testing.T) {
	c := listen(t, Anyone, echo{})
	for sent, want := range map[string]string{
		"\x02\x00\x00\x00{]": "invalid character ']' looking for beginning of object key string",
		"\xff\xff\xff\xff":   "a message of 4294967295 bytes is too long, at most 4096 are read",
		"\x02\x00\x00\x00[]": "json: cannot unmarshal array into Go value of type wire.Request",
		"\x08\x00\x00\x00{":  "unexpected EOF",
	} {
		conn, err := net.Dial("unix", c.Path)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, sent)
		conn.(*net.UnixConn).CloseWrite()
		if _, err := readAnswer(conn); err == nil || err.Error() != "request: "+want {
			t.Errorf("%q: %v", sent, err)
		}
		conn.Close()
	}
	if _, err := Ask[Request](t.Context(), c, Request{Do: GetReady}); err != nil {
		t.Error(err)
	}
}

// An answer of another version is none.
func TestNoAnswer(t *testing.T) {
	for _, sent := range []string{"\x00\x00\x00\x00", "\x01\x00\x00\x00\x02", "\x02\x00\x00\x00{}"} {
		if _, err := readAnswer(strings.NewReader(sent)); err == nil || err.Error() != "this is no answer: are trace and trace-web of one version?" {
			t.Errorf("%q: %v", sent, err)
		}
	}
}

// Connections that ask nothing are refused beyond a number, and later ones are answered.
func TestCrowd(t *testing.T) {
	c := listen(t, Anyone, echo{})
	var open []net.Conn
	for range maxUnread + 10 {
		conn, err := net.Dial("unix", c.Path)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, conn)
	}
	refused := false
	for range 10 {
		_, err := Ask[Request](t.Context(), c, Request{})
		refused = refused || err != nil
	}
	if !refused {
		t.Error("none is refused")
	}
	for _, conn := range open {
		conn.Close()
	}
	for range 100 {
		if _, err := Ask[Request](t.Context(), c, Request{}); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it does not answer again")
}

// waiting answers nothing until the other side goes away, except to a request whose program is "quick".
type waiting struct{}

func (waiting) Answer(ctx context.Context, r Request) (any, error) {
	if r.Program != "quick" {
		<-ctx.Done()
	}
	return r, ctx.Err()
}

func (waiting) Events(ctx context.Context, _ func([]Event) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// However many requests of a kind are open, the other kinds are answered, and one of this kind is refused at once. When they are gone, it is answered.
func TestKindsHaveRoomsOfTheirOwn(t *testing.T) {
	c := listen(t, Anyone, waiting{})
	kinds := []string{GetSettings, GetReady, GetPrograms, GetMetrics, GetProfile, GetEvents, DoReload, "other"}
	for _, crowded := range kinds {
		ctx, end := context.WithCancel(t.Context())
		var over sync.WaitGroup
		var refused atomic.Int64
		for range 64 {
			over.Go(func() {
				if _, err := Ask[Request](ctx, c, Request{Do: crowded}); err != nil && ctx.Err() == nil {
					refused.Add(1)
				}
			})
		}
		most := cmp.Or(limits[crowded], others)
		soon(t, "refusals of "+crowded, func() bool { return refused.Load() == int64(64-most) })
		for _, kind := range kinds {
			if kind == GetEvents {
				continue // they have no end
			}
			got, err := Ask[Request](t.Context(), c, Request{Do: kind, Program: "quick"})
			if want := fmt.Sprintf("the loader answers %d requests for %s already: ask again later", most, crowded); kind == crowded && (err == nil || err.Error() != want) {
				t.Errorf("%s: %v, want %s", kind, err, want)
			}
			if kind != crowded && (err != nil || got.Do != kind) {
				t.Errorf("%s beside 64 for %s: %v", kind, crowded, err)
			}
		}
		end()
		over.Wait()
		soon(t, crowded+" again", func() bool {
			ctx, end := context.WithTimeout(t.Context(), time.Second)
			defer end()
			if crowded == GetEvents {
				err := c.Events(ctx, nil)
				return errors.Is(err, context.DeadlineExceeded)
			}
			_, err := Ask[Request](ctx, c, Request{Do: crowded, Program: "quick"})
			return err == nil
		})
	}
}

func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("waited in vain: " + what)
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		readRequest(bytes.NewReader(data))
	})
}

// The web process believes nothing of what it reads.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00" + `[{"program":"p","time":"2026-01-01T00:00:00Z"}]`))
	f.Add([]byte("\x01x"))
	f.Add([]byte("\x02"))
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := readAnswer(bytes.NewReader(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)))
		if err == nil {
			decodeEvents(body)
		}
	})
}
