package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func quiet() *progress { return &progress{w: io.Discard, kernel: "x", start: time.Now()} }

func TestOnceBuildsOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	target := filepath.Join(dir, "boot")
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := once(t.Context(), dir, target, quiet(), func(tmp string) error {
				builds.Add(1)
				time.Sleep(20 * time.Millisecond)
				return os.WriteFile(filepath.Join(tmp, "vmlinuz"), []byte("kernel"), 0o644)
			})
			if err != nil || readText(filepath.Join(target, "vmlinuz")) != "kernel" {
				t.Errorf("no complete target: %v", err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
}

func TestOnceLeavesNothingAfterFailure(t *testing.T) {
	dir := t.TempDir()
	// What a process that was killed left behind goes too.
	if err := os.Mkdir(filepath.Join(dir, "tmp-old"), 0o755); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("download failed")
	err := once(t.Context(), dir, filepath.Join(dir, "boot"), quiet(), func(tmp string) error {
		if err := os.WriteFile(filepath.Join(tmp, "half"), nil, 0o644); err != nil {
			return err
		}
		return cause
	})
	if !errors.Is(err, cause) {
		t.Errorf("got error %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != "lock" {
		t.Errorf("left %v", entries)
	}
}

func TestLockCanBeInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path, quiet()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v", err)
	}
}

func TestAptSource(t *testing.T) {
	a := apt{mirror: "http://m.example/debian", suite: "trixie", arch: "arm64"}
	want := "deb [arch=arm64 target=Packages signed-by=" + debianKeyring + "] http://m.example/debian trixie main\n"
	if got := a.source(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOneOf(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "usr/lib/modules/7.2.13")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := oneOf(root, "lib/modules/*", "usr/lib/modules/*")
	if err != nil || got != path {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := oneOf(root, "boot/vmlinuz-*"); err == nil {
		t.Error("a missing file is no error")
	}
}
