package console

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"trace/lang/syntax"
	"trace/probes/recording"
)

// ShowInfos reads recordings to their ends and prints what they contain.
func ShowInfos(out io.Writer, names []string) error {
	for i, name := range names {
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := showInfo(out, name); err != nil {
			return err
		}
	}
	return nil
}

func showInfo(out io.Writer, name string) error {
	rec, err := recording.Open(name)
	if err != nil {
		return err
	}
	defer rec.Close()
	for err == nil {
		_, err = rec.Next()
	}
	for _, info := range rec.Info() {
		writeInfo(out, info)
	}
	if err != io.EOF {
		return err
	}
	return nil
}

// writeInfo prints what a recording contains.
func writeInfo(out io.Writer, info recording.Info) {
	var text strings.Builder // a file may come from anywhere
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s:\n", info.Name)
	fmt.Fprintf(w, "  host\t%s, Linux %s %s\n", info.Host, info.Kernel, info.Arch)
	fmt.Fprintf(w, "  program\t%s\n", strings.Join(strings.Fields(info.Program), " "))
	begin := info.Boot.Add(time.Duration(info.Started)).Local()
	fmt.Fprintf(w, "  began\t%s\n", begin.Format("2006-01-02 15:04:05 MST"))
	end := info.Ended
	if info.Cut {
		end = info.Last
	}
	length := max(0, time.Duration(end-info.Started)).Round(time.Millisecond)
	if info.Cut {
		fmt.Fprintf(w, "  length\t%v, then it was cut off\n", length)
	} else {
		fmt.Fprintf(w, "  length\t%v\n", length)
	}
	fmt.Fprintf(w, "  size\t%d bytes, for %d bytes of events\n", info.Bytes, info.RawBytes)
	for _, name := range slices.Sorted(maps.Keys(info.Events)) {
		shown := name
		if name == "profile:hz" && info.SampleRate != 0 {
			shown = fmt.Sprintf("profile:%dhz", info.SampleRate)
		}
		if period := info.Periods[name]; period != 0 {
			shown += ":" + period.String()
		}
		fmt.Fprintf(w, "  %s\t%s\n", shown, plural(info.Events[name], "event"))
	}
	for _, l := range info.LeftOut {
		fmt.Fprintf(w, "  left out\t%s\n", l)
	}
	for _, l := range info.Losses {
		for _, what := range l.Texts() {
			fmt.Fprintf(w, "  lost\t%s\n", what)
		}
	}
	w.Flush()
	io.WriteString(out, syntax.Visible(text.String()))
}
