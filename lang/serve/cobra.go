//go:build linux

package serve

import (
	"log/slog"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	short = "run programs as a service: any map becomes a metric, over HTTP by trace-web and by OTLP"
	long  = `serve runs the programs of a configuration until it is stopped. Each map becomes a metric of Prometheus. SIGHUP, and a change of the file,
reload it: programs that have not changed keep their counts. serve itself talks no HTTP: it starts trace-web, without privileges, which does.
With --socket, another service starts trace-web.`
)

// Command returns the command `trace serve` of a version.
func Command(version string) *cobra.Command {
	s := Settings{Options: Options{Version: version}}
	cmd := &cobra.Command{
		Use: "serve -c FILE", Short: short, Long: long, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, end := signal.NotifyContext(c.Context(), os.Interrupt, unix.SIGTERM)
			defer end()
			s.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			return Main(ctx, s, c.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&s.Config, "config", "c", "/etc/trace/trace.yaml", "`FILE` or folder of the configuration")
	f.StringVar(&s.Socket, "socket", "", "answer a trace-web that is started otherwise, at this `PATH`")
	f.BoolVar(&s.Check, "check", false, "check the configuration and its programs; with --socket, print what a reload would change")
	return cmd
}
