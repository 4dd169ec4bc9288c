//go:build !vm

package main

import (
	"bytes"
	"fmt"
	"html"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// These programs are what the pictures of the documents show, on a recording of reads and writes.
const (
	pictured     = "docs/testdata/load.rec"
	picturedLive = `nvme:complete_rq { @lat[ctrl, opcode] = hist(latency); @slow[ctrl, opcode] = quantile(latency, 50, 99); @[ctrl, opcode] = rate() }`
	picturedPage = `nvme:complete_rq { @lat[ctrl, opcode] = hist(latency); @[ctrl, opcode] = count() }`
)

// TestLivePicture compares the headings in docs/live.svg with a live view of the recording, or draws the picture.
func TestLivePicture(t *testing.T) {
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	speed, rest := "2", time.Duration(0)
	if *docsUpdate { // a column of the picture is a second
		speed, rest = "0.3", 40*time.Second
	}
	x := openTerminal(t, dir, "xterm-256color", 100, "-r", pictured, "--speed", speed, "--live", picturedLive)
	x.expect(`@slow\[ctrl, opcode\]  quantile`) // the first of the commands
	time.Sleep(rest)
	x.send("p")
	x.expect(`paused`)
	time.Sleep(300 * time.Millisecond) // the rest of that frame
	x.mu.Lock()
	frames := strings.Split(x.text, "\x1b[H")
	x.mu.Unlock()
	x.send("q")
	frame := frames[len(frames)-1]
	if *docsUpdate {
		writeDoc(t, "docs/live.svg", drawTerminal(frame))
	}
	picture := readDoc(t, "docs/live.svg")
	for _, heading := range []string{"@lat[ctrl, opcode]  hist", "@slow[ctrl, opcode]  quantile", "@[ctrl, opcode]  rate"} {
		if !strings.Contains(controls.ReplaceAllString(frame, ""), heading) || !strings.Contains(picture, heading) {
			t.Errorf("%q is not in the live view or not in docs/live.svg: go test ./cmd/trace -run Picture -docs.update", heading)
		}
	}
}

// TestPagePicture shows the page in a browser, where there is one.
func TestPagePicture(t *testing.T) {
	data := []byte(readDoc(t, "docs/page.png"))
	if *docsUpdate {
		browser, err := exec.LookPath("chromium")
		if err != nil {
			t.Skip("needs chromium, to draw docs/page.png")
		}
		dir := t.TempDir()
		page, file := filepath.Join(dir, "page.html"), filepath.Join(dir, "page.png")
		if err := os.WriteFile(filepath.Join(dir, "load.rec"), []byte(readDoc(t, pictured)), 0o600); err != nil {
			t.Fatal(err)
		}
		make := exec.Command("trace", "-r", "load.rec", "-f", "html", "-o", "page.html", picturedPage)
		make.Dir = dir
		if out, err := make.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=900,1000",
			"--user-data-dir="+dir, "--screenshot="+file, "file://"+page)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if data, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		writeDoc(t, "docs/page.png", string(data))
	}
	picture, err := png.DecodeConfig(bytes.NewReader(data))
	if err != nil || picture.Width != 900 || len(data) > 200_000 {
		t.Errorf("docs/page.png: %v, %d columns, %d bytes", err, picture.Width, len(data))
	}
}

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// drawTerminal draws what a terminal shows after the text, whose only sequences choose colours and erase.
func drawTerminal(text string) string {
	const column, line = 7.8, 17
	var b strings.Builder
	text = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Zac-ln-z]").ReplaceAllString(text, "")
	lines := strings.Split(strings.TrimRight(text, "\r\n "), "\r\n")
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="monospace" font-size="13">`+"\n", 102*column, (len(lines)+1)*line)
	b.WriteString(`<rect width="100%" height="100%" fill="#16181d"/>` + "\n")
	style := ""
	for y, l := range lines {
		x := 1
		for l != "" {
			part, rest := l, ""
			next := ""
			if at := sgr.FindStringSubmatchIndex(l); at != nil {
				part, next, rest = l[:at[0]], l[at[2]:at[3]], l[at[1]:]
			}
			x += drawText(&b, style, part, float64(x)*column, float64(y+1)*line, column)
			if next != "" || rest != "" {
				style = next
			}
			l = rest
		}
	}
	return b.String() + "</svg>\n"
}

// drawText draws text in the colours of a sequence, and returns how many columns it has.
func drawText(b *strings.Builder, sequence, text string, x, y, column float64) int {
	n := utf8.RuneCountInString(text)
	if n == 0 {
		return 0
	}
	fill, back, weight := "#d0d4dc", "", ""
	switch {
	case sequence == "7":
		fill, back = "#16181d", "#d0d4dc"
	case sequence == "1":
		weight = ` font-weight="bold"`
	case sequence == "31":
		fill = "#e06c75"
	case sequence == "36":
		fill = "#56b6c2"
	case strings.HasPrefix(sequence, "48;5;"):
		back = cube(sequence[5:])
	}
	if back != "" {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="17" fill="%s"/>`+"\n", x, y-13, float64(n)*column+0.5, back)
	}
	if strings.TrimSpace(text) != "" {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s"%s textLength="%.1f" xml:space="preserve">%s</text>`+"\n", x, y, fill, weight, float64(n)*column, html.EscapeString(text))
	}
	return n
}

// cube is a colour of the 6 × 6 × 6 cube of a terminal with 256 colours.
func cube(number string) string {
	n, _ := strconv.Atoi(number)
	levels := []int{0, 95, 135, 175, 215, 255}
	n -= 16
	return fmt.Sprintf("#%02x%02x%02x", levels[n/36%6], levels[n/6%6], levels[n%6])
}
