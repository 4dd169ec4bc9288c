//go:build !vm

package main

import (
	"bytes"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"trace/lang/output"
)

func TestCommandLine(t *testing.T) {
	args := []string{"-r", "a b.rec", "--interval=5", "qp.state==RTR", `printf("it's $x")`, ""}
	want := `trace -r 'a b.rec' --interval=5 qp.state==RTR 'printf("it'\''s $x")' ''`
	if got := commandLine(args); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	out, err := exec.Command("sh", "-c", "trace() { for x; do printf '%s\\0' \"$x\"; done; }\n"+want).Output()
	if err != nil || string(out) != strings.Join(args, "\x00")+"\x00" {
		t.Errorf("a shell reads %q, %v", out, err)
	}
}

// pageOf is the page of a program on a recording.
func pageOf(t *testing.T, file string, src programText, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	o := options{recordings: []string{file}, quiet: true, args: args, format: formatFlag{output.HTML}}
	if err := runReplay(t.Context(), streams{out: &out, err: io.Discard}, o, src); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const pageProgram = `# A comment with what was found on another machine: 4711
param least = 0ns "only slower ones"
param who = "<i>"
nvme:complete_rq / latency >= $least && comm != $who / {
	@lat["<script>alert(1)</script>", "a'b\"c&d"] = hist(latency)
	@rate[disk] = rate(bytes)
	@q[opcode] = quantile(latency, 50, 99)
	@s[opcode] = stats(latency)
	@[qid, opcode] = count()
}
end { printf("</pre><script>alert(2)</script>\n") }`

// The parts of a page are in place, and none of its data becomes markup.
func TestPage(t *testing.T) {
	src := programText{name: "dir/mine.trace", text: pageProgram, params: map[string]string{"least": "1ns"}}
	page := pageOf(t, "../../scripts/testdata/nvme_latency.rec", src, "-f", "html", "dir/mine.trace", "--least=1ns", "--who=<b>")
	for _, want := range []string{
		`<title>mine on vmtest, 20`,
		`<h1>trace <span>mine on vmtest</span></h1>`,
		`<pre class="command">trace -f html dir/mine.trace --least=1ns &#39;--who=&lt;b&gt;&#39;</pre>`,
		`<dt>--least</dt><dd class="mono">1ns</dd>`,
		`<dt>--who (default)</dt><dd class="mono usual">&lt;i&gt;</dd>`,
		`&lt;script&gt;alert(1)&lt;/script&gt;, a&#39;b&#34;c&amp;d</h3>`,
		`<span class="chip">p50 <b>[`,
		`class="legend"`,
		`values a second`,
		`<th class="num">mean</th>`,
		`MiB/s</span>`, // of the peak, as of the mean
		`logarithmic</th>`,
		`title="p50 3.21ms"`,
		`the average</th>`,
		`&lt;/pre&gt;&lt;script&gt;alert(2)`,
		`default-src 'none'`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, never := range []string{"<script", "href=", "src=", "url(", "@import", "http:", "https:", "ZgotmplZ", "8028160"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %s", never)
		}
	}
	results, comment := strings.Index(page, `<section class="card map">`), strings.Index(page, "4711")
	if results < 0 || comment < results || !strings.Contains(page[results:comment], `<details class="program">`) {
		t.Errorf("results at %d, the comment of the script at %d", results, comment)
	}
	wellFormedPage(t, page)
}

// A program that is on the command line stands there, and nowhere else.
func TestPageOfInlineProgram(t *testing.T) {
	text := "nvme:complete_rq { @only_once = count() }"
	page := pageOf(t, recordReads(t, 10), programText{name: "program", text: text}, "-f", "html", "-e", text)
	if !strings.Contains(page, "<title>trace on h, ") || strings.Count(page, "@only_once = count()") != 1 || strings.Contains(page, "The program") {
		t.Error(page)
	}
	wellFormedPage(t, page)
}

// The picture of a run begins with its first value: this recording has none for fourteen seconds of fifteen.
func TestPageBeginsWithTheFirstValue(t *testing.T) {
	page := pageOf(t, "../../scripts/testdata/nvme_latency.rec", programText{name: "program", text: "nvme:complete_rq { @ = hist(latency) }"})
	axis := regexp.MustCompile(`class="times"><span>([0-9:.]+)</span><span>[0-9:.]+</span><span>([0-9:.]+)</span>`).FindStringSubmatch(page)
	if axis == nil {
		t.Fatal("no axis")
	}
	from, err := time.Parse("15:04:05", axis[1])
	to, err2 := time.Parse("15:04:05", axis[2])
	if err != nil || err2 != nil || to.Sub(from) > 3*time.Second || to.Sub(from) < time.Second {
		t.Errorf("the heat map goes from %s to %s", axis[1], axis[2])
	}
	if !strings.Contains(page, "<dd>15.63s</dd>") {
		t.Error("the length of the run has become another")
	}
}

func wellFormedPage(t *testing.T, page string) {
	t.Helper()
	if err := closedInOrder(page); err != nil {
		t.Error(err)
	}
}
