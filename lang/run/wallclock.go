//go:build linux

package run

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"trace/probes/event"
	"trace/probes/symbols"
)

// setting returns how the clock of the machine is set now: the time of day between two readings of the clock of nsecs, a few times. The reading
// between the closest two counts.
func setting() (s event.Setting) {
	const times = 5
	closest := uint64(math.MaxUint64)
	for range times {
		before := symbols.BootClock()
		day := time.Now().Round(0)
		if after := symbols.BootClock(); after-before < closest {
			closest = after - before
			s = event.Setting{From: after, Boot: day.Add(-time.Duration(before + closest/2))}
		}
	}
	return s
}

// followWallClock follows the clock of the machine when it is set, until ctx ends: see timerfd_create(2) on TFD_TIMER_CANCEL_ON_SET.
func followWallClock(ctx context.Context, wall *event.WallClock) error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	timer := os.NewFile(uintptr(fd), "timerfd")
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt64}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil {
		timer.Close()
		return os.NewSyscallError("timerfd_settime", err)
	}
	context.AfterFunc(ctx, func() { timer.Close() })
	go func() {
		for canceled := true; canceled; {
			wall.Set(setting())
			_, err := timer.Read(make([]byte, 8))
			canceled = errors.Is(err, unix.ECANCELED)
		}
	}()
	return nil
}
