//go:build linux

package serve

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"trace/lang/serve/config"
)

// A change is read although others follow without a rest.
func TestChangesWithoutRest(t *testing.T) {
	s, _ := running(t, "")
	_, before := s.now()
	ctx, end := context.WithCancel(t.Context())
	var over sync.WaitGroup
	over.Go(func() { s.watch(ctx, nil) })
	defer over.Wait()
	defer end()
	over.Go(func() {
		for ctx.Err() == nil {
			os.WriteFile(s.options.Config, nil, 0o600)
			time.Sleep(settle / 10)
		}
	})
	waitFor(t, "a reload", func() bool { _, about := s.now(); return about.at.After(before.at) })
}

// Files of others in the same folder, as in /tmp, cause nothing.
func TestConcerns(t *testing.T) {
	dir := t.TempDir()
	file := &Service{options: Options{Config: filepath.Join(dir, "trace.yaml")}, config: &config.Config{}}
	folder := &Service{options: Options{Config: dir}, config: &config.Config{}}
	for name, want := range map[string][2]bool{"trace.yaml": {true, true}, "other.yaml": {false, true}, "..data": {true, true}, "x": {false, false}} {
		e := fsnotify.Event{Name: filepath.Join(dir, name), Op: fsnotify.Write}
		if got := [2]bool{file.concerns(e, dir), folder.concerns(e, dir)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
