package kernel

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trace/probes/event"
)

// The name of a container may come after its cgroup. Followers are called for the cgroup, and again when the name is there.
func TestLateWorkload(t *testing.T) {
	root, files := t.TempDir(), t.TempDir()
	container := strings.Repeat("0123456789abcdef", 4)
	h := hierarchy{mount: root, root: "/"}
	c := cgroupsOf(func() *hierarchy { return &h }, files)
	seen := make(chan event.Workload, 100)
	forget := c.Follow(func(id uint64) { seen <- c.Workload(id) })
	if err := c.Watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "docker", container)
	mkdirs(t, dir)
	id, _ := c.ID("/docker/" + container)
	if got := c.Workload(id); got.Container != container[:12] {
		t.Errorf("without a name it is %+v", got)
	}
	config := filepath.Join(files, "var/lib/docker/containers", container, "config.v2.json")
	mkdirs(t, filepath.Dir(config))
	if err := os.WriteFile(config, []byte(`{"Name":"/web","Config":{"Image":"nginx"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	want := event.Workload{Container: "web", Image: "nginx"}
	for deadline := time.After(20 * time.Second); ; {
		select {
		case got := <-seen:
			if got != want {
				continue
			}
		case <-deadline:
			t.Fatal("no follower got the name")
		}
		break
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	if got := c.Workload(idOf(t, files)); got != (event.Workload{}) {
		t.Errorf("an unknown cgroup runs %+v", got)
	}
	forget()
	c.report(1)
	for len(seen) > 0 {
		if got := <-seen; got == (event.Workload{}) {
			t.Error("a follower is called after forget")
		}
	}
}

// What is looked for again, and when.
func TestDueNames(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		n    named
		want bool
	}{
		{named{first: now, last: now}, false},
		{named{first: now.Add(-soonest), last: now.Add(-soonest)}, true},
		{named{first: now.Add(-soonest), last: now.Add(-soonest), settled: true}, false},
		{named{first: now.Add(-20 * time.Second), last: now.Add(-4 * time.Second)}, false},
		{named{first: now.Add(-20 * time.Second), last: now.Add(-5 * time.Second)}, true},
		{named{first: now.Add(-patience), last: now.Add(-patience)}, false},
	} {
		if got := test.n.due(now); got != test.want {
			t.Errorf("%+v: %v", test.n, got)
		}
	}
}

// Names are looked for only while some are awaited: otherwise a host without containers would wake up ten times a second.
func TestNamesAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := t.TempDir()
		c := cgroupsOf(func() *hierarchy { return &hierarchy{mount: files, root: "/"} }, files)
		looks := 0
		c.Follow(func(uint64) { looks++ })
		ctx, end := context.WithCancel(t.Context())
		go c.lookAgain(ctx)
		// A name may come, and nobody awaits it.
		forget := func(id uint64) {
			c.naming.Lock()
			defer c.naming.Unlock()
			c.workloads[id] = &named{first: time.Now(), last: time.Now()}
		}
		looksSoon := func() (n int) {
			time.Sleep(time.Minute)
			synctest.Wait()
			n, looks = looks, 0
			return n
		}
		for id := range uint64(2) {
			forget(id)
			if n := looksSoon(); n > 0 {
				t.Errorf("names were looked for %d times, though none is awaited", n)
			}
			forget(id)
			c.await()
			if looksSoon() == 0 {
				t.Error("an awaited name is not looked for")
			}
		}
		end()
	})
}

// Only a name that may come is awaited.
func TestOnlyLateNamesAreAwaited(t *testing.T) {
	root := t.TempDir()
	c := cgroupsOf(func() *hierarchy { return &hierarchy{mount: root, root: "/"} }, t.TempDir())
	for path, want := range map[string]int{"/system.slice/ssh.service": 0, "/docker/" + strings.Repeat("0123456789abcdef", 4): 1} {
		mkdirs(t, filepath.Join(root, path))
		id, _ := c.ID(path)
		c.Workload(id)
		if got := len(c.awaited); got != want {
			t.Errorf("%s: %d names are awaited, want %d", path, got, want)
		}
		for len(c.awaited) > 0 {
			<-c.awaited
		}
	}
}
