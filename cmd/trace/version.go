package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionCommand prints what --version prints.
func versionCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "version", Short: "print the version", Args: usageArgs(cobra.NoArgs), RunE: func(*cobra.Command, []string) error {
		_, err := fmt.Fprintf(root.OutOrStdout(), "trace %s\n", root.Version)
		return err
	}}
}

// version describes this binary as the Go toolchain recorded it.
func version() string {
	v := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return fmt.Sprintf("%s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
