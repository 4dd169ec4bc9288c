//go:build !linux

package trace

import (
	"context"
	"errors"
	"io"
	"runtime"

	"trace/lang/run"
)

// local is nothing here: only Linux can be traced.
type local struct{}

func (local) close() {}

// errElsewhere returns why this machine cannot be traced.
func errElsewhere() error {
	return errors.Join(errors.New(runtime.GOOS+" cannot be traced, only Linux: read a recording from Linux with OpenRecording"), ErrUnsupported)
}

func (h *Host) available(string) ([]Status, error) { return nil, errElsewhere() }

func live(run.Options) (runner, error) { return runner{}, errElsewhere() }

func (h *Host) record(context.Context, io.Writer, string) error { return errElsewhere() }
