//go:build !vm

package main

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// speedscopeFolder is a variable of the environment: the folder dist/release of the npm package speedscope.
const speedscopeFolder = "SPEEDSCOPE"

// exportScript has speedscope save what it shows, once it shows something, and sends that to the test.
const exportScript = `<script>
	const Plain = Blob
	window.Blob = function (parts, options) {
		if (parts.join('').includes('speedscope.app/file-format-schema')) fetch('/exported', {method: 'POST', body: parts.join('')})
		return new Plain(parts, options)
	}
	const wait = setInterval(() => {
		if (!document.body.innerText.includes('Left Heavy')) return
		clearInterval(wait)
		window.dispatchEvent(new KeyboardEvent('keydown', {key: 's', ctrlKey: true}))
	}, 100)
</script>`

// speedscopeProfile is a thread in speedscope's own format.
type speedscopeProfile struct {
	Name, Unit string
	Events     []struct {
		Type  string
		Frame int
		At    float64
	}
}

// TestSpeedscope opens traces in speedscope, in a headless browser. What it exports has as many slices as another program
// counts, and they are as long.
//
//	npm install speedscope && SPEEDSCOPE=$PWD/node_modules/speedscope/dist/release go test ./cmd/trace -run TestSpeedscope
func TestSpeedscope(t *testing.T) {
	folder := os.Getenv(speedscopeFolder)
	if folder == "" {
		t.Skipf("%s does not name the folder dist/release of the npm package speedscope", speedscopeFolder)
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("needs chromium, which runs speedscope: %v", err)
	}
	for _, test := range []struct{ file, probes string }{
		{"nvme_latency", "nvme:complete_rq"},
		{"nvme_stuck", "nvme:complete_rq"},
		{"rdma_flows", "ib:create_qp, ib:modify_qp, ib:destroy_qp"},
	} {
		file := "scripts/testdata/" + test.file + ".rec"
		counted := replay(t, "-r", file, "-f", "json", test.probes+" / latency != nil / { @n[0] = count(); @length[0] = sum(latency) }")
		want := sums{slices: rowsOf(t, counted, "@n")["0"], length: rowsOf(t, counted, "@length")["0"]}
		var got sums
		for _, p := range openInSpeedscope(t, browser, folder, replay(t, "-r", file, "-f", "perfetto", test.probes)) {
			depth := 0
			for _, e := range p.Events {
				at := int64(math.Round(e.At * 1000))
				if depth++; e.Type == "C" {
					depth -= 2
					got.slices, at = got.slices+1, -at
				}
				got.length -= at
				if depth > 1 {
					t.Errorf("%s, %s: one slice is in another at %v", test.file, p.Name, e.At)
				}
			}
			if p.Unit != "microseconds" || depth != 0 || strings.HasPrefix(p.Name, "pid") {
				t.Errorf("%s: %s has the unit %s, and ends at depth %d", test.file, p.Name, p.Unit, depth)
			}
		}
		if t.Logf("%s: %d slices of %d ns", test.file, got.slices, got.length); got != want {
			t.Errorf("%s: speedscope has %+v, want %+v", test.file, got, want)
		}
	}
}

// openInSpeedscope returns the threads that speedscope exports of a trace.
func openInSpeedscope(t *testing.T, browser, folder, trace string) []speedscopeProfile {
	t.Helper()
	exported := make(chan []byte, 1)
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(folder)))
	mux.HandleFunc("GET /trace", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, trace) })
	mux.HandleFunc("GET /open", func(w http.ResponseWriter, _ *http.Request) {
		page, err := os.ReadFile(filepath.Join(folder, "index.html"))
		if err != nil {
			t.Error(err)
		}
		io.WriteString(w, strings.Replace(string(page), "<body>", "<body>"+exportScript, 1))
	})
	mux.HandleFunc("POST /exported", func(_ http.ResponseWriter, r *http.Request) {
		if data, err := io.ReadAll(r.Body); err == nil {
			exported <- data
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		server.URL+"/open#profileURL="+server.URL+"/trace")
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // with all its helpers
	var file struct{ Profiles []speedscopeProfile }
	select {
	case data := <-exported:
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("speedscope exports nothing")
	}
	return file.Profiles
}
